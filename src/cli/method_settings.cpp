#include "cli/method_settings.h"

#include <algorithm>

#include "method/methods.h"

namespace sluice {

namespace {

// What else must be so for an option to be read: another one is given, has a value, or is absent.
struct Condition {
  const char* option = nullptr;  // null: nothing else
  const char* value = nullptr;   // null: whatever it is
  bool given = true;

  bool holds(const CLI::App& command) const {
    if (option == nullptr) return true;
    const CLI::Option* other = command.get_option(option);
    if (value != nullptr) return other->count() > 0 && other->as<std::string>() == value;
    return (other->count() > 0) == given;
  }
  std::string text() const {
    if (option == nullptr) return "";
    return std::string(given ? " with " : " without ") + option + (value != nullptr ? std::string(" ") + value : "");
  }
};

struct Readers {
  std::vector<std::string> methods;
  Condition condition;
  Condition also = {};
};

struct Setting {
  const char* option;
  std::vector<Readers> readers;
};

const std::vector<Setting>& settings() {
  static const std::vector<std::string> all = speculating_methods();
  static const std::vector<std::string> drafting = drafting_methods();
  static const std::vector<Setting> settings = {
      {"--width", {{{"spd", "ppsd", "specpipe", "surge"}, {}}}},
      {"--levels", {{{"specpipe"}, {}}}},
      {"--group", {{{"specpipe"}, {}}}},
      {"--children", {{all, {}}}},
      {"--depth",
       {{{"sd", "eagle3", "p-eagle", "ssd"}, {}}, {{"specinfer"}, {"--tree-nodes"}}, {{"surge"}, {"--head"}}}},
      {"--tree", {{{"specinfer"}, {.option = "--tree-nodes", .given = false}}}},
      {"--tree-nodes", {{{"specinfer", "eagle3"}, {}}}},
      {"--draft-rows", {{{"surge"}, {}}}},
      {"--draft-vocab", {{drafting, {"--draft"}}}},
      {"--draft-p-min", {{{"sd", "p-eagle"}, {}}, {{"eagle3"}, {.option = "--tree-nodes", .given = false}}}},
      {"--budget", {{{"ssd"}, {}}}},
      {"--fallback", {{{"ssd"}, {}}}},
      {"--lookahead", {{{"pipespec"}, {}}}},
      {"--lossy", {{all, {}}}},
      {"--lossy-p", {{all, {"--lossy", "top-p"}}}},
      {"--replacement",
       {{{"specinfer", "spd", "ppsd", "specpipe", "surge"}, {"--verify", "reject"}},
        {{"eagle3"}, {"--verify", "reject"}, {"--tree-nodes"}}}},
      {"--saguaro", {{{"ssd"}, {"--verify", "reject"}}}},
      {"--saguaro-tokens", {{{"ssd"}, {"--saguaro"}}}},
  };
  return settings;
}

bool runs(const std::vector<std::string>& methods, const Readers& readers) {
  return std::any_of(methods.begin(), methods.end(), [&](const std::string& method) {
    return std::find(readers.methods.begin(), readers.methods.end(), method) != readers.methods.end();
  });
}

// "a, b and c"
std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

std::string named(const Setting& setting) {
  std::string text;
  for (const Readers& readers : setting.readers)
    text +=
        (text.empty() ? "" : ", and by ") + joined(readers.methods) + readers.condition.text() + readers.also.text();
  return text;
}

}  // namespace

Status check_settings_are_read(const CLI::App& command, const std::vector<std::string>& methods) {
  for (const Setting& setting : settings()) {
    if (command.get_option(setting.option)->count() == 0) continue;
    const auto reads = [&](const Readers& readers) {
      return runs(methods, readers) && readers.condition.holds(command) && readers.also.holds(command);
    };
    if (std::any_of(setting.readers.begin(), setting.readers.end(), reads)) continue;
    return input_error(std::string(setting.option) + " is read by " + named(setting) + "; here " + joined(methods) +
                       (methods.size() == 1 ? " runs" : " run") + ": leave it out");
  }
  return {};
}

}  // namespace sluice
