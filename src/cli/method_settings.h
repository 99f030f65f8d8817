// Which methods read which options: a setting that nobody reads is a mistake that would go unseen.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// An error (kInput) for an option that was given to the command and that none of these methods reads, naming those that
// do.
Status check_settings_are_read(const CLI::App& command, const std::vector<std::string>& methods);

}  // namespace sluice
