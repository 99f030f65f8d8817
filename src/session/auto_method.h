// Method `auto`: the best that the files at hand allow. Whether it pays is found out by the trial
// (session/auto_trial.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/profile.h"
#include "model/head_file.h"
#include "session/options.h"

namespace sluice {

// What there is to guess by, beside the text itself.
struct AtHand {
  bool draft = false;            // a draft model
  std::optional<HeadKind> head;  // a trained head
};
std::string best_method(const AtHand& at_hand);

// Which head of those that come with the program is worth loading: none where something else was given.
std::optional<HeadKind> head_worth_loading(const SessionOptions& options);
// Whether the draft that comes with the program is, where no such head is there: for a model in several stages, unless
// the profile gives no time for one.
bool draft_worth_loading(const SessionOptions& options, const std::optional<Profile>& profile);

// The methods that a run may come to: the one that was asked for, or all that `auto` chooses among, as far as can be
// known before files are opened.
std::vector<std::string> methods_of_run(const SessionOptions& options);

}  // namespace sluice
