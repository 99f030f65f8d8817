#include "transport/weight_fetch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "transport/weight_server.h"
#include "transport/weights.h"
#include "wire/codec.h"

namespace sluice {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kKeepEvery = 64;  // blocks; what a power cut may cost
constexpr double kSayEvery = 10;   // seconds

std::string megabytes(uint64_t bytes) { return std::to_string((bytes + 500'000) / 1'000'000) + " MB"; }

double seconds_since(Clock::time_point time) { return std::chrono::duration<double>(Clock::now() - time).count(); }

// One fetch.
class Fetch {
 public:
  // files: path and identity of what is fetched. head: it is a head's own file.
  Fetch(StageId stage, const WeightFiles& files, bool head, const FetchMeans& means)
      : stage_(stage),
        identity_(files.identity),
        head_(head),
        means_(means),
        file_(std::filesystem::path(files.path).filename().string()) {}

  Result<WeightStore> run() {
    SLUICE_TRY_STATUS(send(WeightsAsked{.stage = stage_, .head = head_}));
    SLUICE_TRY(offered_, next<WeightsOffered>());
    SLUICE_TRY_STATUS(means_.reserve(static_cast<int64_t>(std::min<uint64_t>(offered_.memory, INT64_MAX))));
    SLUICE_TRY(WeightStore store, WeightStore::open(means_.cache, identity_, offered_, means_.ended));
    if (store.missing().empty()) {
      means_.say("takes " + file_ + " from " + store.folder());
    } else {
      SLUICE_TRY_STATUS(store.make_room());
      const Status fetched = take_missing(store);
      SLUICE_TRY_STATUS(store.keep());
      SLUICE_TRY_STATUS(fetched);
    }
    return store;
  }

  // Where a stage with these options reads there must be no hole, and nothing that another coordinator has sent alone.
  Status check_all_offered(const ModelFile& model, const StageOptions& options) const {
    const LayerRange range = options.range;
    const bool is_known = 0 <= range.first && range.first <= range.last && range.last <= model.hparams().n_layers;
    if (!is_known) return runtime_error("it was sent a recipe of layers that the model does not have");
    const auto blocks = blocks_of_stage(model, options);
    for (size_t i = 0; i < blocks.size(); ++i)
      if (!std::ranges::includes(offered_.files[i].blocks, blocks[i]))
        return runtime_error("it was offered less than its layers; do all hosts run the same release?");
    return {};
  }

 private:
  Status send(const Message& message) const { return means_.coordinator->send(message, Priority::kUrgent); }

  template <class T>
  Result<T> next() const {
    const auto frame = means_.next();
    if (!frame) return runtime_error("the coordinator has gone");
    SLUICE_TRY(auto message, decode(frame->bytes()));
    if (auto* wanted = std::get_if<T>(&message)) return std::move(*wanted);
    return runtime_error("it was sent what it did not ask for; do all hosts run the same release?");
  }

  // Some blocks are always asked for beforehand, so that the link never rests.
  Status take_missing(WeightStore& store) const {
    const auto& missing = store.missing();
    const uint64_t all = store.missing_bytes();
    means_.say("fetches " + megabytes(all) + " of " + file_ + " from the coordinator");
    const auto begin = Clock::now();
    auto said = begin;
    uint64_t done = 0;
    for (size_t asked = 0, come = 0; come < missing.size(); ++come) {
      for (; asked < std::min(missing.size(), come + kWeightBlocksAhead); ++asked)
        SLUICE_TRY_STATUS(send(WeightBlockAsked{.file = missing[asked].file,
                                                .block = missing[asked].block,
                                                .left = static_cast<uint32_t>(missing.size() - asked),
                                                .head = head_}));
      SLUICE_TRY(const auto block, next<WeightBlock>());
      SLUICE_TRY_STATUS(store.put(missing[come], block));
      done += missing[come].bytes;
      if (come % kKeepEvery == kKeepEvery - 1) SLUICE_TRY_STATUS(store.keep());
      if (seconds_since(said) < kSayEvery) continue;
      said = Clock::now();
      say_progress(done, all, seconds_since(begin));
    }
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f s", seconds_since(begin));
    means_.say("fetched " + megabytes(all) + " of " + file_ + " in " + seconds + " into " + store.folder() +
               "; the cache holds " + megabytes(bytes_kept(means_.cache)));
    return {};
  }

  void say_progress(uint64_t done, uint64_t all, double seconds) const {
    const auto left = static_cast<int64_t>(seconds * static_cast<double>(all - done) / static_cast<double>(done));
    char text[64];
    std::snprintf(text, sizeof text, "%d %%, %d:%02d left", static_cast<int>(100 * done / all),
                  static_cast<int>(left / 60), static_cast<int>(left % 60));
    means_.say("fetches " + file_ + ": " + text);
  }

  const StageId stage_;
  const Sha256 identity_;
  const bool head_;
  const FetchMeans& means_;
  const std::string file_;  // for people
  WeightsOffered offered_;
};

}  // namespace

Result<FetchedModel> fetch_model(const StageRecipe& recipe, const FetchMeans& means) {
  const WeightFiles wanted = model_files(recipe);
  Fetch fetch(recipe.stage, wanted, /*head=*/false, means);
  SLUICE_TRY(WeightStore store, fetch.run());
  SLUICE_TRY(ModelFile model, ModelFile::open_part(store.path(), wanted.identity));
  SLUICE_TRY_STATUS(fetch.check_all_offered(model, recipe.options));
  return FetchedModel{.model = std::move(model), .in_use = store.use()};
}

Result<FetchedHead> fetch_head(const StageRecipe& recipe, const ModelFile& target, const FetchMeans& means) {
  SLUICE_TRY(WeightStore store, Fetch(recipe.stage, recipe.files, /*head=*/true, means).run());
  SLUICE_TRY(HeadFile head, HeadFile::open(store.path(), target));
  return FetchedHead{.head = std::move(head), .in_use = store.use()};
}

}  // namespace sluice
