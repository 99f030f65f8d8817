// What --help and --help-all print.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice {

// The options of a command that --help shows; --help-all has those of other groups too.
inline constexpr const char* kCommonGroup = "Options";
// What is added to the command from here on belongs to this group.
void begin_group(CLI::App& command, const char* title);

// --help: the common options, and which other groups there are.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

}  // namespace sluice
