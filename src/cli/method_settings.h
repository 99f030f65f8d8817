// Which methods read which options: a setting that nobody reads is a mistake that would go unseen.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"

namespace sluice {

// Those that a run may come to: the one that was asked for, or all that `auto` chooses among.
std::vector<std::string> methods_of_run(const CommonOptions& options);

// An error (kInput) for an option that was given to the command and that none of these methods reads, naming those that
// do.
Status check_settings_are_read(const CLI::App& command, const std::vector<std::string>& methods);

}  // namespace sluice
