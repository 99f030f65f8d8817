// Makes a plan: measures, shares out the layers, leaves out who is of no use, and runs all methods on a few texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/plan_report.h"
#include "session/installation.h"
#include "session/session.h"

namespace sluice {

struct PlanOptions {
  SessionOptions session;
  std::string out;    // where what was measured goes; empty: the profile `local`, or beside the plan
  std::string hosts;  // what --hosts said
  std::string data = installation_folder() + "/prompts";
  std::vector<std::string> tasks = {"code", "math", "chat"};
  int32_t limit = 3;    // prompts a task
  double seconds = 60;  // that it may take, about
  bool json = false;
};

// Passes of the model, and of each draft model, on their devices of this machine. Threads: of each. Errors:
// interrupted, and as make_stage_runner()'s.
Result<Profile> measure_here(const Session& session, int32_t threads);

// Writes it. Errors name --out.
Status write_profile(const Profile& profile, const std::string& path);

// The plan for the stages that the options ask for; it is kept, too. Errors name the option.
Result<Plan> make_plan(const PlanOptions& options);

}  // namespace sluice
