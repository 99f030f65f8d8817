#include "session/hosts_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <utility>

// Errors are values here too.
#define TOML_EXCEPTIONS 0

// A file may break what its parser asserts, or has the compiler assume, and what the parser then looks at all the same.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) static_cast<void>(0)
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace sluice {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostBytes = size_t{1} << 20;  // of a file
constexpr double kMostGib = 1e6, kLeastPatience = 0.5, kMostPatience = 3600;
constexpr int64_t kMostLayers = 100'000, kMostThreads = 256;

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// One pass over a file. What it reads goes where the keys of a table say.
class HostsReader {
 public:
  explicit HostsReader(const std::string& path) : path_(path), folder_(fs::path(path).parent_path()) {}

  Result<HostsFile> read(const toml::table& root) {
    SLUICE_TRY_STATUS(read_table(root, "a file of hosts",
                                 {{"secret", [this](const auto& node) { return read_path(node, file_.secret); }},
                                  {"patience", [this](const auto& node) { return read_patience(node); }},
                                  {"up", [this](const auto& node) { return read_up(node); }},
                                  {"host", [this](const auto& node) { return read_hosts(node); }}}));
    if (file_.hosts.empty())
      return input_error(path_ + ": it names no hosts: give each a [[host]] with address = \"192.168.1.7:7001\"");
    SLUICE_TRY_STATUS(check_stages());
    return std::move(file_);
  }

 private:
  using Read = std::function<Status(const toml::node&)>;
  struct Key {
    const char* name;
    Read read;
  };

  tl::unexpected<Error> wrong(const toml::node& node, const std::string& what) const {
    return input_error(path_ + ":" + std::to_string(node.source().begin.line) + ": " + what);
  }

  Status read_table(const toml::table& table, const std::string& what, const std::vector<Key>& keys) const {
    for (const auto& [key, node] : table) {
      const std::string name{std::string_view(key)};
      const auto known = std::ranges::find_if(keys, [&](const Key& one) { return name == one.name; });
      if (known == keys.end()) {
        std::vector<std::string> names;
        for (const Key& one : keys) names.emplace_back(one.name);
        return wrong(node, "there is no key '" + name + "' of " + what + "; there are " + listed(names));
      }
      name_ = name;
      SLUICE_TRY_STATUS(known->read(node));
    }
    return {};
  }

  Status read_up(const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr) return wrong(node, "up is a table: write [up]");
    HostsFile::Up& up = file_.up;
    return read_table(*table, "[up]",
                      {{"ssh", [&](const auto& words) { return read_words(words, up.ssh); }},
                       {"sluice", [&](const auto& text) { return read_text(text, up.sluice); }},
                       {"secret", [&](const auto& text) { return read_text(text, up.secret); }},
                       {"options", [&](const auto& words) { return read_words(words, up.options); }}});
  }

  Status read_hosts(const toml::node& node) {
    const toml::array* hosts = node.as_array();
    if (hosts == nullptr) return wrong(node, "each host is a table of its own: write [[host]]");
    for (const toml::node& host : *hosts) {
      const toml::table* table = host.as_table();
      if (table == nullptr) return wrong(host, "each host is a table of its own: write [[host]]");
      SLUICE_TRY_STATUS(read_host(*table));
    }
    return {};
  }

  Status read_host(const toml::table& table) {
    HostsFile::Host host;
    HostOptions& options = host.options;
    std::string name;
    SLUICE_TRY_STATUS(
        read_table(table, "a host",
                   {{"address", [&](const auto& node) { return read_address(node, options.address); }},
                    {"name", [&](const auto& node) { return read_text(node, name); }},
                    {"role", [&](const auto& node) { return read_role(node, host.role); }},
                    {"layers", [&](const auto& node) { return read_whole(node, kMostLayers, options.layers); }},
                    {"threads", [&](const auto& node) { return read_whole(node, kMostThreads, options.threads); }},
                    {"memory", [&](const auto& node) { return read_real(node, 0, kMostGib, "GiB", options.memory); }},
                    {"device", [&](const auto& node) { return read_text(node, options.device); }},
                    {"relay", [&](const auto& node) { return read_flag(node, options.address.relay); }},
                    {"here", [&](const auto& node) { return read_flag(node, host.launch.here); }},
                    {"login", [&](const auto& node) { return read_text(node, host.launch.login); }},
                    {"sluice", [&](const auto& node) { return read_text(node, host.launch.sluice); }},
                    {"options", [&](const auto& node) { return read_words(node, host.launch.options); }}}));
    if (host.launch.login.starts_with('-'))
      return wrong(table, "login '" + host.launch.login + "' would be an option of ssh: give USER@HOST");
    if (options.address.host.empty())
      return wrong(table, "this host has no address: add address = \"192.168.1.7:7001\"");
    options.address.name = name;
    if (options.layers > 0 && host.role != HostRole::kStage)
      return wrong(*table.get("layers"), "layers is for hosts of stages, and host " + options.address.for_people() +
                                             " has the role " + name_of(kHostRoles, host.role) + ": leave it out");
    lines_.push_back(table.source().begin.line);
    file_.hosts.push_back(std::move(host));
    return {};
  }

  // Their layers must be known of all or of none.
  Status check_stages() const {
    size_t n = 0, silent = 0, n_silent = 0;
    for (size_t i = 0; i < file_.hosts.size(); ++i) {
      if (file_.hosts[i].role != HostRole::kStage) continue;
      ++n;
      if (file_.hosts[i].options.layers == 0) silent = i, ++n_silent;
    }
    if (n == 0) return input_error(path_ + ": no host has the role stage, which holds layers: give it to one at least");
    if (n_silent == 0 || n_silent == n) return {};
    return input_error(
        path_ + ":" + std::to_string(lines_[silent]) +
        ": this host has no layers = N, and others have: " + "give it to all hosts of stages, or to none");
  }

  Status read_text(const toml::node& node, std::string& to) const {
    const auto text = node.value_exact<std::string>();
    const bool plain = text && !text->empty() && std::ranges::none_of(*text, [](char c) { return c >= 0 && c < ' '; });
    if (!plain) return wrong(node, name_ + " must be a text in quotes, in one line");
    to = *text;
    return {};
  }
  Status read_words(const toml::node& node, std::vector<std::string>& to) const {
    const toml::array* words = node.as_array();
    if (words == nullptr || words->empty())
      return wrong(node, name_ + " must be a list of words, as in [\"--no-fetch\"]");
    to.clear();
    for (const toml::node& word : *words) SLUICE_TRY_STATUS(read_text(word, to.emplace_back()));
    return {};
  }
  Status read_flag(const toml::node& node, bool& to) const {
    const auto flag = node.value_exact<bool>();
    if (!flag) return wrong(node, name_ + " must be true or false");
    to = *flag;
    return {};
  }
  Status read_path(const toml::node& node, std::string& to) const {
    SLUICE_TRY_STATUS(read_text(node, to));
    to = (folder_ / to).string();
    return {};
  }
  Status read_address(const toml::node& node, HostAddress& to) const {
    std::string text;
    SLUICE_TRY_STATUS(read_text(node, text));
    auto address = HostAddress::parse(text);
    if (!address) return wrong(node, address.error().message);
    to.host = address->host;
    to.port = address->port;
    return {};
  }
  Status read_role(const toml::node& node, HostRole& to) const {
    std::string text;
    SLUICE_TRY_STATUS(read_text(node, text));
    const auto role = value_of(kHostRoles, text);
    if (!role) return wrong(node, "there is no role '" + text + "'; there are " + listed(names_of(kHostRoles)));
    to = *role;
    return {};
  }
  Status read_whole(const toml::node& node, int64_t most, int32_t& to) const {
    const auto number = node.value_exact<int64_t>();
    if (!number || *number < 1 || *number > most)
      return wrong(node, name_ + " must be a whole number, 1 to " + std::to_string(most));
    to = static_cast<int32_t>(*number);
    return {};
  }
  Status read_real(const toml::node& node, double above, double most, const std::string& unit, double& to) const {
    const auto number = node.is_number() ? node.value<double>() : std::nullopt;
    if (!number || !(*number > above && *number <= most))
      return wrong(node, name_ + " must be a number above " + std::to_string(static_cast<int64_t>(above)) + ", in " +
                             unit + ", " + std::to_string(static_cast<int64_t>(most)) + " at most");
    to = *number;
    return {};
  }
  Status read_patience(const toml::node& node) {
    const auto seconds = node.is_number() ? node.value<double>() : std::nullopt;
    if (!seconds || !(*seconds >= kLeastPatience && *seconds <= kMostPatience))
      return wrong(node, "patience must be a number of seconds, 0.5 to 3600");
    file_.patience = seconds;
    return {};
  }

  const std::string path_;
  const fs::path folder_;
  HostsFile file_;
  std::vector<toml::source_index> lines_;  // of the hosts
  mutable std::string name_;               // of the key that is read
};

}  // namespace

Result<HostsFile> HostsFile::parse(const std::string& text, const std::string& path) {
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed)
    return input_error(path + ":" + std::to_string(parsed.error().source().begin.line) + ": " +
                       std::string(parsed.error().description()) + "; the format is TOML, see docs/hosts.md");
  return HostsReader(path).read(parsed.table());
}

Result<HostsFile> HostsFile::load(const std::string& path) {
  std::error_code error;
  std::ifstream in(path, std::ios::binary);
  if (!fs::is_regular_file(path, error) || !in)
    return input_error(path + ": no file of hosts that can be read; see docs/hosts.md for one, or name hosts as in " +
                       "a:7001,b:7001");
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMostBytes)
    return input_error(path + ": more than 1 MiB is no file of hosts; see docs/hosts.md for one");
  return parse(text, path);
}

void take_hosts(const HostsFile& file, SessionOptions& options) {
  options.hosts.clear();
  options.draft_hosts.clear();
  options.spares.clear();
  for (const HostsFile::Host& host : file.hosts)
    if (host.role == HostRole::kSpare)
      options.spares.push_back(host.options.address);
    else
      (host.role == HostRole::kDraft ? options.draft_hosts : options.hosts).push_back(host.options);
  options.secret = file.secret;
  if (file.patience) options.patience = *file.patience;
}

Result<HostsFile> hosts_of(const std::string& text) {
  std::error_code error;
  if (text.ends_with(".toml") || text.find('/') != text.npos || fs::is_regular_file(text, error))
    return HostsFile::load(text);
  SLUICE_TRY(const auto addresses, parse_hosts(text));
  HostsFile file;
  for (const HostAddress& address : addresses) file.hosts.push_back({.options = {.address = address}});
  return file;
}

}  // namespace sluice
