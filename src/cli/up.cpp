#include <poll.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <utility>

#include "cli/child_process.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/values.h"
#include "session/hosts_file.h"
#include "transport/secret.h"

namespace sluice {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct UpCommand {
  std::string hosts;
  bool check = false, copy_secret = false;
  double patience = 60;  // seconds
};

constexpr const char *kVersion = "sluice " SLUICE_VERSION, *kListening = "sluice stage: listening on ";
constexpr double kToEnd = 10;  // seconds that a host is given

// A host that is started, and what it has said.
struct Started {
  std::string name;  // for people
  ChildProcess process;
  bool up = false;
  std::string last_line = {};
};

// What the shell of each host is told.
class Launcher {
 public:
  explicit Launcher(const HostsFile& file) : file_(file) {}

  // A process of each; a host that is named several times holds several stages in one.
  std::vector<HostsFile::Host> hosts() const {
    std::vector<HostsFile::Host> all;
    for (const HostsFile::Host& host : file_.hosts)
      if (std::ranges::none_of(all, [&](const auto& one) { return address(one) == address(host); }))
        all.push_back(host);
    return all;
  }

  static std::string name(const HostsFile::Host& host) { return host.options.address.for_people(); }

  std::string stage(const HostsFile::Host& host) const {
    std::vector<std::string> words = {program(host), "stage", "--until-eof", "--listen", address(host)};
    const auto add = [&](const char* option, const std::string& value) { words.insert(words.end(), {option, value}); };
    if (!file_.secret.empty()) add("--secret", secret(host));
    if (host.options.threads > 0) add("--threads", std::to_string(host.options.threads));
    if (host.options.memory > 0) add("--memory", fmt::format("{}", host.options.memory));
    if (host.role == HostRole::kSpare) words.emplace_back("--spare");
    for (const auto* options : {&file_.up.options, &host.launch.options})
      words.insert(words.end(), options->begin(), options->end());
    std::string line = "exec";
    for (const std::string& word : words) line += " " + quoted_for_shell(word);
    return line;
  }

  // Says the version of its sluice, and whether the secret is missing.
  std::string check(const HostsFile::Host& host) const {
    std::string line = quoted_for_shell(program(host)) + " --version";
    if (!file_.secret.empty())
      line +=
          " && { test -r " + quoted_for_shell(secret(host)) + " || echo no " + quoted_for_shell(secret(host)) + "; }";
    return line;
  }

  // Takes it from standard input.
  std::string take_secret(const HostsFile::Host& host) const {
    const std::string path = quoted_for_shell(secret(host));
    return "umask 077 && rm -f " + path + " && cat >" + path;
  }

  std::vector<std::string> words(const HostsFile::Host& host, const std::string& line) const {
    if (host.launch.here) return {"sh", "-c", line};
    std::vector<std::string> words = file_.up.ssh;
    words.push_back(host.launch.login.empty() ? host.options.address.host : host.launch.login);
    words.push_back(line);
    return words;
  }

 private:
  static std::string address(const HostsFile::Host& host) { return host.options.address.text(); }
  std::string program(const HostsFile::Host& host) const {
    if (!host.launch.sluice.empty()) return host.launch.sluice;
    std::error_code error;
    return host.launch.here ? fs::read_symlink("/proc/self/exe", error).string() : file_.up.sluice;
  }
  std::string secret(const HostsFile::Host& host) const {
    if (host.launch.here) return fs::absolute(file_.secret).string();
    return file_.up.secret.empty() ? fs::path(file_.secret).filename().string() : file_.up.secret;
  }

  const HostsFile& file_;
};

std::string ending(int status, const std::string& last_line) {
  const std::string how = status >= 0 ? fmt::format("status {}", status) : fmt::format("signal {}", -status);
  return how + (last_line.empty() ? "" : ": " + last_line);
}

// Several processes, and what they say, until there is nothing to wait for any more.
class Watch {
 public:
  explicit Watch(std::list<Started>& all) : all_(all) {}

  // Waits for what one of them says, or an interrupt, or that a time has come. line: is called for each.
  template <class Line>
  void wait(Clock::time_point until, Line line) {
    std::vector<pollfd> waited = {{interrupt_descriptor(), POLLIN, 0}};
    std::vector<Started*> whose;
    for (Started& one : all_)
      if (one.process.output() >= 0) {
        waited.push_back({one.process.output(), POLLIN, 0});
        whose.push_back(&one);
      }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    const int timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
    if (::poll(waited.data(), waited.size(), timeout) <= 0) return;
    for (size_t i = 0; i < whose.size(); ++i) {
      if (waited[i + 1].revents == 0) continue;
      whose[i]->process.read_some();
      while (const auto said = whose[i]->process.next_line()) {
        if (!said->empty()) whose[i]->last_line = *said;
        line(*whose[i], *said);
      }
    }
  }

 private:
  std::list<Started>& all_;
};

Clock::time_point in_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Up {
 public:
  Up(const UpCommand& command, const HostsFile& file) : command_(command), launcher_(file), secret_(file.secret) {}

  Status check() {
    SLUICE_TRY_STATUS(start_all([this](const auto& host) { return launcher_.check(host); }));
    for (Started& one : all_) one.process.end_input();
    std::string wrong, ready;
    size_t n_wrong = 0;
    SLUICE_TRY_STATUS(wait_for_ends([&](Started& one, const std::vector<std::string>& said, int status) {
      std::string what;
      const auto is_version = [](const std::string& line) { return line.starts_with("sluice "); };
      const auto version = std::ranges::find_if(said, is_version);  // ssh may say something before it
      if (status != 0) {
        what = ending(status, one.last_line);
      } else if (version == said.end() || *version != kVersion) {
        what = "it has " + (version == said.end() ? "no version" : *version) + ", and here is " + kVersion;
      } else if (said.back().starts_with("no ")) {
        what = said.back() + " there: copy it, or start with --copy-secret";
      }
      if (what.empty()) {
        ready += one.name + ": ready\n";
      } else {
        wrong += "; " + one.name + ": " + what;
        ++n_wrong;
      }
    }));
    SLUICE_TRY_STATUS(print(ready));
    if (n_wrong == 0) return {};
    return runtime_error(fmt::format("{} of {} hosts are not ready{}", n_wrong, all_.size(), wrong));
  }

  Status copy_secret() {
    if (secret_.empty())
      return input_error(command_.hosts +
                         " names no secret to copy: add secret = \"FILE\" to it, or leave --copy-secret out");
    SLUICE_TRY_STATUS(Secret::load(secret_).map([](const Secret&) {}));
    std::ifstream in(secret_, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (const HostsFile::Host& host : launcher_.hosts())
      if (!host.launch.here) SLUICE_TRY_STATUS(start(host, launcher_.take_secret(host)));
    for (Started& one : all_) {
      one.process.write(text);
      one.process.end_input();
    }
    std::string wrong;
    SLUICE_TRY_STATUS(wait_for_ends([&](Started& one, const auto&, int status) {
      if (status != 0)
        wrong += (wrong.empty() ? "" : "; ") + one.name +
                 ": the secret can't be copied there: " + ending(status, one.last_line);
    }));
    if (!wrong.empty()) return runtime_error(wrong);
    all_.clear();
    return {};
  }

  // Until Ctrl-C, or one of them ends.
  Status run() {
    SLUICE_TRY_STATUS(start_all([this](const auto& host) { return launcher_.stage(host); }));
    const Status ran = watch();
    end_all();
    return ran;
  }

 private:
  template <class Line>
  Status start_all(Line line) {
    for (const HostsFile::Host& host : launcher_.hosts()) SLUICE_TRY_STATUS(start(host, line(host)));
    return {};
  }
  Status start(const HostsFile::Host& host, const std::string& line) {
    SLUICE_TRY(ChildProcess process, ChildProcess::start(launcher_.words(host, line)));
    all_.push_back({.name = Launcher::name(host), .process = std::move(process)});
    return {};
  }

  // Of all, each with its lines and its status.
  template <class End>
  Status wait_for_ends(End end) {
    std::map<Started*, std::vector<std::string>> said;
    const auto deadline = in_seconds(command_.patience);
    const auto is_open = [](const Started& one) { return one.process.output() >= 0; };
    while (std::ranges::any_of(all_, is_open) && Clock::now() < deadline) {
      Watch(all_).wait(deadline, [&](Started& one, const std::string& line) { said[&one].push_back(line); });
      if (interrupted()) return interrupted_error();
    }
    for (Started& one : all_) {
      if (is_open(one))
        return runtime_error(
            fmt::format("{}: no answer within {} s: does its ssh let you in?", one.name, command_.patience));
      end(one, said[&one], one.process.wait());
    }
    return {};
  }

  Status watch() {
    const auto deadline = in_seconds(command_.patience);
    size_t n_up = 0;
    while (!interrupted()) {
      const bool all_up = n_up == all_.size();
      if (!all_up && Clock::now() >= deadline) return not_up();
      Watch(all_).wait(all_up ? in_seconds(3600) : deadline, [&](Started& one, const std::string& line) {
        std::fprintf(stderr, "%s: %s\n", one.name.c_str(), line.c_str());
        if (one.up || !line.starts_with(kListening)) return;
        one.up = true;
        ++n_up;
      });
      for (Started& one : all_)
        if (one.process.output() < 0)
          return runtime_error(fmt::format("host {}: its sluice stage has ended with {}", one.name,
                                           ending(one.process.wait(), one.last_line)));
      if (!all_up && n_up == all_.size())
        SLUICE_TRY_STATUS(print(
            fmt::format("{} hosts are up: sluice run --hosts {} uses them, Ctrl-C ends them\n", n_up, command_.hosts)));
    }
    return {};
  }

  tl::unexpected<Error> not_up() const {
    std::string names;
    for (const Started& one : all_)
      if (!one.up) names += (names.empty() ? "" : ", ") + one.name;
    return runtime_error(
        fmt::format("{} did not come up within {} s: can ssh log in there without a password, and is sluice "
                    "there? sluice up --check says more",
                    names, command_.patience));
  }

  // Their standard input ends, and so do they.
  void end_all() {
    for (Started& one : all_) one.process.end_input();
    const auto deadline = in_seconds(kToEnd);
    const auto is_open = [](const Started& one) { return one.process.output() >= 0; };
    const bool again = interrupted();
    if (again) clear_interrupt();
    while (std::ranges::any_of(all_, is_open) && Clock::now() < deadline && !interrupted())
      Watch(all_).wait(deadline, [](const Started&, const std::string&) {});
    for (Started& one : all_) one.process.terminate();
  }

  const UpCommand& command_;
  const Launcher launcher_;
  const std::string secret_;
  std::list<Started> all_;
};

Status up(const UpCommand& command) {
  SLUICE_TRY(const HostsFile file, HostsFile::load(command.hosts));
  Up hosts(command, file);
  if (command.copy_secret) SLUICE_TRY_STATUS(hosts.copy_secret());
  return command.check ? hosts.check() : hosts.run();
}

}  // namespace

void add_up(CLI::App& app, Action& action) {
  auto options = std::make_shared<UpCommand>();
  CLI::App& command = *app.add_subcommand("up", "Starts the hosts of a file over ssh, and ends them again with Ctrl-C");
  command.footer(
      "ssh must log in there without a password, and sluice of the same release be installed; see docs/hosts.md.\n"
      "Examples:\n"
      "  sluice up hosts.toml --check\n"
      "  sluice up hosts.toml\n"
      "  sluice run --hosts hosts.toml -m model.gguf \"Hello\"");
  command.add_option("hosts", options->hosts, "File of hosts (TOML)")->required()->check(not_empty("a file of hosts"));
  command.add_flag("--check", options->check, "Only say whether each could be started");
  command.add_flag("--copy-secret", options->copy_secret, "Copy the file's secret to each host before");
  command.add_option("--patience", options->patience, "Seconds that hosts have to come up")
      ->capture_default_str()
      ->check(number(1, 3600));
  command.callback([options, &action] { action = [options] { return up(*options); }; });
}

}  // namespace sluice
