#include "transport/weight_server.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "model/block_hashes.h"
#include "pipeline/stage_memory.h"

namespace sluice {

std::vector<std::vector<uint32_t>> blocks_of_stage(const ModelFile& model, const StageOptions& options) {
  std::vector<std::set<uint32_t>> blocks(model.files().size());
  for (const auto& [file, begin, end] : model.ranges(options.range, options.with_embedding, options.with_head))
    for (uint64_t block = begin / kWeightBlockBytes; block * kWeightBlockBytes < end; ++block)
      blocks[file].insert(static_cast<uint32_t>(block));
  std::vector<std::vector<uint32_t>> lists;
  for (const auto& of_file : blocks) lists.emplace_back(of_file.begin(), of_file.end());
  return lists;
}

namespace {

Result<WeightsOffered> offer(const OpenFiles& files, std::vector<std::vector<uint32_t>> blocks, int64_t memory) {
  WeightsOffered offered{.files = {}, .memory = static_cast<uint64_t>(memory)};
  for (size_t i = 0; i < files.size(); ++i) {
    SLUICE_TRY(auto hashes, hashes_of_blocks(*files[i], kWeightBlockBytes, blocks[i]));
    offered.files.push_back({.bytes = files[i]->size(), .blocks = std::move(blocks[i]), .hashes = std::move(hashes)});
  }
  return offered;
}

}  // namespace

Result<WeightsOffered> offer_weights(const ModelFile& model, const StageRecipe& recipe) {
  return offer(model.files(), blocks_of_stage(model, recipe.options), least_bytes_of_stage(recipe, model));
}

Result<WeightsOffered> offer_weights(const HeadFile& head, const ModelFile& target, const StageRecipe& recipe) {
  std::vector<std::vector<uint32_t>> blocks;
  for (const auto& file : head.files()) {
    auto& all = blocks.emplace_back((file->size() + kWeightBlockBytes - 1) / kWeightBlockBytes);
    std::iota(all.begin(), all.end(), uint32_t{0});
  }
  return offer(head.files(), std::move(blocks), bytes_of_stage(recipe, head, target));
}

namespace {

// Of a block that is asked for.
Result<uint64_t> bytes_of(const OpenFiles& files, const WeightBlockAsked& asked) {
  const uint64_t bytes =
      asked.file < files.size() ? bytes_of_block(files[asked.file]->size(), kWeightBlockBytes, asked.block) : 0;
  if (bytes == 0) return runtime_error("it asks for weights that the model does not have");
  return bytes;
}

}  // namespace

Result<WeightBlock> read_weights(const OpenFiles& files, const WeightBlockAsked& asked) {
  SLUICE_TRY(const uint64_t bytes, bytes_of(files, asked));
  WeightBlock block{.file = asked.file, .block = asked.block, .bytes = std::vector<uint8_t>(bytes)};
  SLUICE_TRY_STATUS(
      files[asked.file]->read(asked.block * kWeightBlockBytes, std::as_writable_bytes(std::span(block.bytes))));
  return block;
}

WeightServer::WeightServer(OpenFiles files, Offer offer, OnSent on_sent, std::function<void(const Error&)> failed)
    : files_(std::move(files)), offer_(std::move(offer)), on_sent_(std::move(on_sent)), failed_(std::move(failed)) {}

WeightServer::~WeightServer() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status WeightServer::ask(std::shared_ptr<Connection> stage, const StageRecipe& recipe,
                         std::optional<WeightBlockAsked> asked) {
  if (asked) SLUICE_TRY_STATUS(bytes_of(files_, *asked).map([](uint64_t) {}));
  const std::lock_guard lock(mutex_);
  const auto waiting = std::ranges::count(requests_, stage, &Request::stage);
  if (waiting >= ptrdiff_t{kWeightBlocksAhead}) return runtime_error("it asks for more weights at a time than it may");
  requests_.push_back({std::move(stage), recipe, asked});
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  changed_.notify_all();
  return {};
}

void WeightServer::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !requests_.empty(); });
    if (closed_) return;
    const Request request = std::move(requests_.front());
    requests_.pop_front();
    lock.unlock();
    const Status answered = answer(request);
    if (!answered && failed_) failed_(answered.error());
    lock.lock();
  }
}

// A connection takes as much as a stage may ask for without waiting. One that has ended is for others to notice.
Status WeightServer::answer(const Request& request) {
  if (!request.asked) {
    SLUICE_TRY(WeightsOffered offered, offer_(request.recipe));
    static_cast<void>(request.stage->send(std::move(offered), Priority::kBulk));
    return {};
  }
  SLUICE_TRY(WeightBlock block, read_weights(files_, *request.asked));
  static_cast<void>(request.stage->send(std::move(block), Priority::kBulk));
  if (note_sent(request)) return {};
  return tl::unexpected<Error>(Error{ErrorKind::kInterrupted, "interrupted; what has been sent is kept there"});
}

bool WeightServer::note_sent(const Request& request) {
  ++sent_;
  left_[request.stage.get()] = request.asked->left - std::min(request.asked->left, 1U);
  uint64_t all = sent_;
  for (const auto& [stage, left] : left_) all += left;
  return !on_sent_ || on_sent_(sent_, all);
}

}  // namespace sluice
