#include "cli/help.h"

#include <vector>

namespace sluice {

namespace {

std::vector<const CLI::Option*> options_of(const CLI::App* app, const std::string& group) {
  return app->get_options(
      [&](const CLI::Option* option) { return option->nonpositional() && option->get_group() == group; });
}

}  // namespace

void begin_group(CLI::App& command, const char* title) { command.option_defaults()->group(title); }

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  std::vector<std::string> others;
  size_t n = 0;
  for (const std::string& group : app->get_groups()) {
    const size_t size = options_of(app, group).size();
    if (group == kCommonGroup || size == 0) continue;
    others.push_back(group);
    n += size;
  }
  if (mode != CLI::AppFormatMode::Normal || others.empty()) return CLI::Formatter::make_help(app, name, mode);
  return make_description(app) + make_usage(app, name) + make_positionals(app) +
         make_group(kCommonGroup, false, options_of(app, kCommonGroup)) + "\n" + std::to_string(n) +
         " more, by group, with " + name + " --help-all:\n  " + CLI::detail::join(others, ", ") + "\n\n" +
         make_footer(app);
}

}  // namespace sluice
