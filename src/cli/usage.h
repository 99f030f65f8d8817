// Says what is wrong with a command line, in the words of who wrote it.
#pragma once

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace sluice {

// `app` has just thrown `error`.
Error explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace sluice
