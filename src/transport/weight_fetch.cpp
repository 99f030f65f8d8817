#include "transport/weight_fetch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "transport/weight_server.h"
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
  Fetch(const StageRecipe& recipe, const FetchMeans& means)
      : recipe_(recipe), means_(means), file_(std::filesystem::path(recipe.files.path).filename().string()) {}

  Result<FetchedModel> run() {
    SLUICE_TRY_STATUS(send(WeightsAsked{.stage = recipe_.stage}));
    SLUICE_TRY(const auto offered, next<WeightsOffered>());
    SLUICE_TRY_STATUS(means_.reserve(static_cast<int64_t>(std::min<uint64_t>(offered.memory, INT64_MAX))));
    SLUICE_TRY(WeightStore store, WeightStore::open(means_.cache, recipe_.files.identity, offered, means_.ended));
    if (store.missing().empty()) {
      means_.say("takes " + file_ + " from " + store.folder());
    } else {
      SLUICE_TRY_STATUS(store.make_room());
      const Status fetched = take_missing(store);
      SLUICE_TRY_STATUS(store.keep());
      SLUICE_TRY_STATUS(fetched);
    }
    SLUICE_TRY(ModelFile model, ModelFile::open_part(store.path(), recipe_.files.identity));
    SLUICE_TRY_STATUS(check_all_offered(model, offered));
    return FetchedModel{.model = std::move(model), .in_use = store.use()};
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
                                                .left = static_cast<uint32_t>(missing.size() - asked)}));
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

  // Where it reads there must be no hole, and nothing that another coordinator has sent alone.
  Status check_all_offered(const ModelFile& model, const WeightsOffered& offered) const {
    const LayerRange range = recipe_.options.range;
    const bool is_known = 0 <= range.first && range.first <= range.last && range.last <= model.hparams().n_layers;
    if (!is_known) return runtime_error("it was sent a recipe of layers that the model does not have");
    const auto blocks = blocks_of_stage(model, recipe_.options);
    for (size_t i = 0; i < blocks.size(); ++i)
      if (!std::ranges::includes(offered.files[i].blocks, blocks[i]))
        return runtime_error("it was offered less than its layers; do all hosts run the same release?");
    return {};
  }

  const StageRecipe& recipe_;
  const FetchMeans& means_;
  const std::string file_;  // for people
};

}  // namespace

Result<FetchedModel> fetch_model(const StageRecipe& recipe, const FetchMeans& means) {
  return Fetch(recipe, means).run();
}

}  // namespace sluice
