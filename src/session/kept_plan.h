// What `sluice plan` has found, kept in the user's cache for the runs that follow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/profile.h"
#include "base/result.h"
#include "session/contender.h"
#include "session/draft_place.h"

namespace sluice {

// What a plan is for.
struct PlanKey {
  std::string model;                // the identity of its file
  std::vector<std::string> drafts;  // likewise
  std::vector<std::string> hosts;   // of its stages, HOST:PORT; empty: they are in this process
  int32_t stages = 1;
  std::string pace;                       // that of a profile (pace_of()); empty: as fast as they are
  std::vector<std::string> devices = {};  // SessionOptions::devices

  std::string text() const;
  // The file of such a plan, whether it is there or not, and that of what was measured for it.
  std::string path() const;
  std::string profile_path() const;
};

// What tells profiles of different contents apart.
std::string pace_of(const Profile& profile);

struct KeptPlan {
  std::vector<int32_t> cuts;  // first layers of the second, third, … stage
  DraftPlace draft_on = {};   // where the draft model promised most
  std::string contender;      // Contender::name() of the method that did
  double tokens_per_second = 0, plain_tokens_per_second = 0;

  // The contender of that name, if this release knows it.
  std::optional<Contender> best(bool with_draft) const;
};

// Whether any plan was ever kept: as long as none was, nobody need know a model's identity.
bool has_plans();
// The plan for this, if there is one that can be read.
std::optional<KeptPlan> find_plan(const PlanKey& key);
// Errors (kRuntime) name the file.
Status keep_plan(const PlanKey& key, const KeptPlan& plan);

}  // namespace sluice
