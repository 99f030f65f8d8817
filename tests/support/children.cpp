#include "support/children.h"

#include <unistd.h>

#include <cctype>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

namespace sluice::test {

namespace {

// Of whom it is a child; -1: it has ended.
pid_t parent_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_ends = line.rfind(')');
  if (name_ends == line.npos || name_ends + 4 > line.size()) return -1;
  return std::stoi(line.substr(name_ends + 4));  // ") S 123 …"
}

}  // namespace

std::set<pid_t> children() {
  std::set<pid_t> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (std::isdigit(static_cast<unsigned char>(name.front())) != 0 && parent_of(name) == ::getpid())
      all.insert(std::stoi(name));
  }
  return all;
}

void stop_children_but(const std::set<pid_t>& these) {
  for (const pid_t child : children())
    if (!these.contains(child)) ::kill(child, SIGKILL);
}

}  // namespace sluice::test
