#include <dlfcn.h>

#include <filesystem>

#include "transport/message_passing.h"

namespace sluice {

namespace {

constexpr const char* kModule = "libsluice-mpi.so";

// Beside the program where it was built; by its name alone it is looked for along the run path of one that is
// installed.
std::string module_path() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path built = fs::read_symlink("/proc/self/exe", error).parent_path() / kModule;
  return fs::exists(built, error) ? built.string() : kModule;
}

}  // namespace

Result<std::unique_ptr<MessagePassing>> load_mpi() {
  const std::string module = module_path();
  // Open MPI's own plugins look for its symbols among the global ones. What was loaded stays.
  void* loaded = ::dlopen(module.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (loaded == nullptr) {
    const std::string why = ::dlerror();
    if (why.starts_with(std::string(kModule) + ":"))  // it is not there; else what it needs is not
      return runtime_error(
          "this sluice was built without MPI: apt-get install openmpi-bin libopenmpi-dev, then cmake --preset release "
          "&& ninja -C build");
    return runtime_error("MPI can't be loaded (" + why + "): is openmpi-bin installed here?");
  }
  const auto start = reinterpret_cast<MessagePassing* (*)()>(::dlsym(loaded, "sluice_start_mpi"));
  if (start == nullptr) return runtime_error(module + " is of another release: ninja -C build makes it anew");
  std::unique_ptr<MessagePassing> mpi(start());
  if (mpi == nullptr) return runtime_error("this MPI was built without threads (MPI_THREAD_FUNNELED): take another");
  return mpi;
}

}  // namespace sluice
