// The commands below `sluice train`.
#pragma once

#include "cli/commands.h"

namespace sluice {

void add_train_data(CLI::App& train, Action& action);
void add_train_spd(CLI::App& train, Action& action);
void add_train_eagle3(CLI::App& train, Action& action);
void add_train_p_eagle(CLI::App& train, Action& action);
void add_train_exit(CLI::App& train, Action& action);
void add_train_draft(CLI::App& train, Action& action);

}  // namespace sluice
