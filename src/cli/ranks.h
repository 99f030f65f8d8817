// What becomes of a command that mpirun or srun has started several times.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "session/options.h"

namespace sluice {

// Whether this process is another rank than 0, by what its launcher says in the environment. Of the command line, which
// is the same for all, only rank 0 says anything.
bool is_follower();

// Runs a command. Where there are several ranks, or --executor mpi asks for them, rank 0 runs it over the stages that
// all ranks hold, one each, and the others hold theirs until it is done; then they say nothing but what fails in them.
Status over_ranks(const CLI::App& command, SessionOptions& options, const std::function<Status()>& run);

}  // namespace sluice
