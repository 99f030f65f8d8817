// One function a command: adds its options to the program and, when it was chosen, runs it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace sluice {

// What a chosen command does; registered while the command line is parsed.
using Action = std::function<Status()>;

void add_run(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_train(CLI::App& app, Action& action);
void add_train_data(CLI::App& train, Action& action);  // below it
void add_demo(CLI::App& app, Action& action);
void add_secret(CLI::App& app, Action& action);
void add_stage(CLI::App& app, Action& action);
void add_up(CLI::App& app, Action& action);

}  // namespace sluice
