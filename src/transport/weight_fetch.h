// Weights from the coordinator, from the side of the stage, or head, that lacks them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "model/head_file.h"
#include "model/model_file.h"
#include "transport/connection.h"
#include "transport/weight_store.h"
#include "wire/recipe.h"

namespace sluice {

struct FetchMeans {
  WeightCache cache;
  Connection* coordinator = nullptr;
  std::function<std::optional<Frame>()> next;          // that comes from it; nothing: it has gone
  std::function<Status(int64_t)> reserve;              // memory of the stage, before anything is fetched
  std::function<void(const std::string&)> say;         // a line for who looks after this host
  std::function<bool()> ended = [] { return false; };  // nobody waits for it any more
};

struct FetchedModel {
  ModelFile model;
  std::unique_ptr<FileLock> in_use;  // keeps its weights on the disk
};

// Fetches what a stage of this recipe reads of its model, or a head borrows of its target, and this host does not have,
// checks it, and keeps it. What has come stays when it breaks off, so the next time goes on from there. Errors say how
// much room is missing, or what has come that nobody asked for.
Result<FetchedModel> fetch_model(const StageRecipe& recipe, const FetchMeans& means);

struct FetchedHead {
  HeadFile head;
  std::unique_ptr<FileLock> in_use;
};

// The same of a head's own file. target: of it, which outlives the head; part of it may be there.
Result<FetchedHead> fetch_head(const StageRecipe& recipe, const ModelFile& target, const FetchMeans& means);

}  // namespace sluice
