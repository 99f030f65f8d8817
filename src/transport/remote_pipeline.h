// A model's stages on other hosts, and a head of it there, from the coordinator's side.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/cost_model.h"
#include "pipeline/frame_check.h"
#include "pipeline/remote_stages.h"
#include "transport/address.h"
#include "transport/secret.h"
#include "wire/recipe.h"

namespace sluice {

class MpiJob;

struct RemotePlan {
  // A head of the model on another host. Stages send it what it reads; it is lost with them, and they with it.
  struct Head {
    ModelId id;
    HostAddress host;
    StageRecipe recipe;              // with the identities of its files
    const HeadFile* file = nullptr;  // that its host is sent if it lacks it; it outlives the stages
    std::optional<CostModel> cost;   // as below
    std::vector<LayerRange> cuts;    // likewise
  };
  // A pass takes no more than so many usual ones, a prompt's included.
  static constexpr double kLongestPass = 600;

  ModelId id = kTarget;              // of the model
  std::vector<HostAddress> hosts;    // one a stage; a host may hold several
  std::vector<HostAddress> spares;   // who takes the stages of a host that is lost, in this order
  std::optional<Secret> secret;      // without one: this machine only
  std::shared_ptr<MpiJob> job;       // whose ranks the hosts are, of which none is replaced; null: over TCP
  double patience = 0.75;            // seconds that a silent host is given
  double search = 5.0;               // seconds that are spent on finding somebody for the stages of a lost host
  double stands_still = 5.0;         // seconds beyond the longest pass after which a stage has hung,
  double first_pass = 60.0;          // and as long as it has computed nothing
  std::vector<StageRecipe> recipes;  // of its stages, with the identity of their files
  int32_t n_tokens = 0;              // of the target's vocabulary
  std::optional<FrameCheck> taps;    // what a head in this process may be sent; none: there is none here
  std::optional<Head> head;          // none: it is in this process, or there is none
  std::optional<CostModel> cost;     // whose pace the stages and links keep to; none: as fast as they can
  std::vector<LayerRange> cuts;      // that it is applied to
  std::string memo;                  // the file, on the last stage's host, of one whose answers are stored
  // Stages that lack it are sent its weights, and a head what it borrows; null: they are not. It outlives them.
  const ModelFile* model = nullptr;
  std::function<bool(uint64_t, uint64_t)> on_sent;  // blocks of weights so far, and in all; false: stop
  std::string alike;  // a type of weights that like processors alone compute alike; empty: there is none
  // A line for the user when a host is lost, and when its stages are elsewhere. Of any thread.
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

// Waits until every host has made its stage and reached the next. Errors (kRuntime) name the host and the remedy.
Result<std::unique_ptr<RemoteStages>> open_remote_pipeline(RemotePlan plan);

}  // namespace sluice
