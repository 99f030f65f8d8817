// A file that says which hosts hold stages, and what each of them is given: docs/hosts.md, "The file of hosts".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"
#include "base/result.h"
#include "session/options.h"

namespace sluice {

// kDraft: where guesses are made, by a draft model or a head.
enum class HostRole : uint8_t { kStage, kDraft, kSpare };
inline constexpr Choice<HostRole> kHostRoles[] = {
    {"stage", HostRole::kStage}, {"draft", HostRole::kDraft}, {"spare", HostRole::kSpare}};

// How `sluice up` starts a host. Paths are of the host, relative to where a login begins.
struct HostLaunch {
  bool here = false;                 // on this machine, without ssh
  std::string login;                 // that ssh goes to; empty: the address
  std::string sluice;                // the program; empty: what all hosts have
  std::vector<std::string> options;  // of sluice stage, besides what the file says otherwise
};

struct HostsFile {
  struct Host {
    HostOptions options;
    HostRole role = HostRole::kStage;
    HostLaunch launch;
  };
  struct Up {
    std::vector<std::string> ssh = {"ssh", "-o", "BatchMode=yes"};  // its words before the host's login
    std::string sluice = "sluice";
    std::string secret;                // where hosts have it; empty: where a login begins, by the name that it has here
    std::vector<std::string> options;  // of every sluice stage
  };
  std::vector<Host> hosts;         // in the file's order; one stage at least
  std::string secret;              // a file; empty: none
  std::optional<double> patience;  // seconds
  Up up;

  // Reads TOML. Paths in it are relative to its folder. Errors (kInput) name the file and the line, and what would be
  // right.
  static Result<HostsFile> load(const std::string& path);
  // The same of a text. path: for errors, and what paths are relative to.
  static Result<HostsFile> parse(const std::string& text, const std::string& path);
};

// Puts what the file says where the command line would.
void take_hosts(const HostsFile& file, SessionOptions& options);

// What --hosts takes: addresses with commas, or a file, which ends in .toml, is there, or has a folder in its name.
// Errors (kInput) say what would be right.
Result<HostsFile> hosts_of(const std::string& text);

}  // namespace sluice
