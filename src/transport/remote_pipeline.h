// A model's stages on other hosts, from the coordinator's side.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/frame_check.h"
#include "pipeline/remote_stages.h"
#include "transport/address.h"
#include "transport/secret.h"
#include "wire/recipe.h"

namespace sluice {

class MpiJob;

struct RemotePlan {
  ModelId id = kTarget;              // of the model
  std::vector<HostAddress> hosts;    // one a stage; a host may hold several
  std::optional<Secret> secret;      // without one: this machine only
  std::shared_ptr<MpiJob> job;       // whose ranks the hosts are; null: they are reached over TCP
  double patience = 5.0;             // seconds that a silent host is given
  std::vector<StageRecipe> recipes;  // of its stages, with the identity of their files
  int32_t n_tokens = 0;              // of the target's vocabulary
  std::optional<FrameCheck> taps;    // what heads may be sent; none: there is no head
  std::string pace;                  // a profile as JSON that the stages keep to; empty: as fast as they can
  std::vector<LayerRange> cuts;      // for it
  const ModelFile* model = nullptr;  // stages that lack it are sent its weights; null: they are not. It outlives them
  std::function<bool(uint64_t, uint64_t)> on_sent;  // blocks of weights so far, and in all; false: stop
  std::string alike;  // a type of weights that like processors alone compute alike; empty: there is none
};

// Waits until every host has made its stage and reached the next. Errors (kRuntime) name the host and the remedy.
Result<std::unique_ptr<RemoteStages>> open_remote_pipeline(RemotePlan plan);

}  // namespace sluice
