// Says what is wrong with a command line, in the words of who wrote it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// `app` has just thrown `error`.
Error explain(const CLI::App& app, const CLI::ParseError& error);

// Refuses options of llama.cpp that would be read as one letter and its value, -ngl as -n gl. `arguments` as typed.
Status refuse_foreign(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace sluice
