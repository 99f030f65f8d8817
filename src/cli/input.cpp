#include "cli/input.h"

namespace sluice {

namespace {

tl::unexpected<Error> too_long() {
  return input_error("what comes in by stdin is longer than " + std::to_string(kLongestInput >> 20) +
                     " MiB, which no context can hold");
}

}  // namespace

Result<std::string> read_all(std::istream& in) {
  std::string text;
  for (char buffer[4096]; in.read(buffer, sizeof buffer) || in.gcount() > 0;) {
    text.append(buffer, static_cast<size_t>(in.gcount()));
    if (text.size() > kLongestInput) return too_long();
  }
  if (in.bad()) return runtime_error("stdin could not be read");
  return text;
}

Result<std::optional<std::string>> read_line(std::istream& in) {
  std::string line;
  for (char c = 0; in.get(c);) {
    if (c == '\n') {
      if (line.ends_with('\r')) line.pop_back();  // as on Windows
      return line;
    }
    line += c;
    if (line.size() > kLongestInput) return too_long();
  }
  if (line.empty()) return std::nullopt;
  return line;
}

}  // namespace sluice
