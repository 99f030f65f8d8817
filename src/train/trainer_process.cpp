// train.h for the program `sluice`, which has no libtorch: loading that takes longer than most commands. The program
// `sluice-trainer` beside it is the same with libtorch inside; it takes over the process, with the same arguments.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "train/train.h"

namespace sluice {

namespace {

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

// What libraries read when they are loaded; a user's own settings stay.
void set_environment() {
  // Threads of libgomp that wait busily starve each other where cores are shared.
  ::setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
#if defined(__x86_64__)
  // libtorch 1.13 leaves AVX-512 unused unless it is told otherwise, and OpenBLAS 0.3.21 doesn't know that AMD
  // has it.
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_is("amd")) return;
  ::setenv("ATEN_CPU_CAPABILITY", "avx512", /*overwrite=*/0);
  ::setenv("OPENBLAS_CORETYPE", "SkylakeX", /*overwrite=*/0);
#endif
}

// Comes back only if there is no trainer, or it can't be run.
Result<TrainFigures> become_trainer() {
  std::error_code error;
  const auto trainer = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "sluice-trainer";
  if (error || !std::filesystem::exists(trainer, error))
    return runtime_error(
        "this build has no libtorch, which training needs: install libtorch-dev and libopenblas0-pthread, then build "
        "with "
        "-DSLUICE_TRAIN=ON");
  set_environment();
  auto arguments = own_arguments();
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(trainer.c_str(), argv.data());
  return runtime_error(trainer.string() + ": can't be run (" + std::strerror(errno) + ")");
}

}  // namespace

Result<TrainFigures> train_head(const ModelFile&, const HeadOptions&, const TrainOptions&, const TrainHooks&) {
  return become_trainer();
}

}  // namespace sluice
