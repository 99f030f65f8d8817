#include "cli/commands.h"

namespace sluice {

void add_train(CLI::App& app, Action& action) {
  CLI::App& train = *app.add_subcommand("train", "Trains a speculator for a model");
  train.require_subcommand(1);
  train.footer(
      "Examples:\n"
      "  sluice train data --self 5000 --out corpus\n"
      "  sluice train spd --data corpus --stages 10 --out spd-10");
  add_train_data(train, action);
  add_train_heads(train, action);
}

}  // namespace sluice
