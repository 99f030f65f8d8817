#include <dlfcn.h>

#include <filesystem>

#include "transport/message_passing.h"

namespace sluice {

Result<std::unique_ptr<MessagePassing>> load_mpi() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path module = fs::read_symlink("/proc/self/exe", error).parent_path() / "libsluice-mpi.so";
  if (!fs::exists(module, error))
    return runtime_error("this sluice was built without MPI: apt-get install openmpi-bin libopenmpi-dev, then " +
                         std::string("cmake --preset release && ninja -C build"));
  // Open MPI's own plugins look for its symbols among the global ones. What was loaded stays.
  void* loaded = ::dlopen(module.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (loaded == nullptr)
    return runtime_error("MPI can't be loaded (" + std::string(::dlerror()) + "): is openmpi-bin installed here?");
  const auto start = reinterpret_cast<MessagePassing* (*)()>(::dlsym(loaded, "sluice_start_mpi"));
  if (start == nullptr) return runtime_error(module.string() + " is of another release: ninja -C build makes it anew");
  std::unique_ptr<MessagePassing> mpi(start());
  if (mpi == nullptr) return runtime_error("this MPI was built without threads (MPI_THREAD_FUNNELED): take another");
  return mpi;
}

}  // namespace sluice
