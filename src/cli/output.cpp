#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace sluice {

namespace fs = std::filesystem;

void occupy_standard_streams() {
  // The other way round than they are used: writing to stdout is an error, not lost.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));  // the lowest free number
}

Status print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return runtime_error(std::string("stdout could not be written: ") + std::strerror(errno));
  return {};
}

int report(const Error& error) {
  std::string line = error.message;
  for (char& c : line)
    if (c == '\n') c = ' ';
  std::fprintf(stderr, "sluice: %s\n", line.c_str());
  return static_cast<int>(error.kind);
}

Status check_writable(const std::string& option, const std::string& path) {
  const auto bad = [&](const std::string& why) { return input_error(option + " " + path + ": " + why); };
  std::error_code error;
  if (fs::is_directory(path, error)) return bad("that is a folder; name a file in it");
  if (fs::exists(path, error)) {
    if (access(path.c_str(), W_OK) != 0) return bad(std::string("cannot be written: ") + std::strerror(errno));
    return {};
  }
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (!fs::is_directory(folder, error)) return bad("there is no folder " + folder + "; make it first");
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    return bad("no file can be made in the folder " + folder + ": " + std::strerror(errno));
  return {};
}

}  // namespace sluice
