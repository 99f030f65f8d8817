// Helpers of the tests: a StageRunner, or several that share a model, fed with texts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "compute/packed_size.h"
#include "compute/stage_runner.h"

namespace sluice::test {

// Reproducible numbers for tests.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  double uniform() { return sluice::uniform({seed_, 0, next_++, Purpose::kTest}, 0); }
  int32_t below(int32_t n) { return static_cast<int32_t>(uniform() * n); }
  float normal() {  // by Irwin and Hall: near enough
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return static_cast<float>(sum);
  }
  std::vector<float> normals(size_t n) {
    std::vector<float> out(n);
    for (float& x : out) x = normal();
    return out;
  }
  std::vector<Token> tokens(size_t n, int32_t n_vocab) {
    std::vector<Token> out(n);
    for (Token& t : out) t = below(n_vocab);
    return out;
  }

 private:
  uint64_t seed_;
  uint32_t next_ = 0;
};

inline ModelFile open_model(const std::string& path) {
  auto model = ModelFile::open(path);
  if (!model) throw std::runtime_error(model.error().message);
  return std::move(*model);
}

// The stages of one model in one thread: a batch goes through all of them at once.
class Pipeline {
 public:
  struct Options {
    std::vector<int32_t> cuts;  // first layers of the second, third … stage
    int32_t threads = 1, n_cells = 1024, max_rows = 256;
    KvType kv = KvType::kF32;
    std::vector<std::string> devices = {kCpuDevice};  // of the stages; the last one's also of those that follow
    int32_t width_lock = kWidthLock;
    bool experts_wait = false;  // in the file, but for one more than a layer has
  };
  Pipeline(const ModelFile& model, const Options& options) : model_(model) {
    std::vector<int32_t> edges = {0};
    edges.insert(edges.end(), options.cuts.begin(), options.cuts.end());
    edges.push_back(model.hparams().n_layers);
    for (size_t i = 0; i + 1 < edges.size(); ++i) {
      StageOptions stage;
      stage.range = {edges[i], edges[i + 1]};
      stage.with_embedding = i == 0;
      stage.with_head = i + 2 == edges.size();
      stage.kv = options.kv;
      stage.n_cells = options.n_cells;
      stage.max_rows = options.max_rows;
      stage.threads = options.threads;
      stage.device = options.devices[std::min(i, options.devices.size() - 1)];
      stage.width_lock = options.width_lock;
      const int64_t of_layer = expert_bytes_of_layer(model, stage.range);
      if (options.experts_wait) stage.expert_memory = of_layer + of_layer / model.hparams().mixture.n_experts + 64;
      auto runner = make_stage_runner(model, stage);
      if (!runner) throw std::runtime_error(runner.error().message);
      stages_.push_back(std::move(*runner));
    }
  }

  Exactness exactness() const {
    Exactness weakest = Exactness::kBitwise;
    for (const auto& stage : stages_) weakest = std::max(weakest, stage->exactness());
    return weakest;
  }

  void update(const std::vector<PathUpdate>& updates) { run(updates, {}, {}); }

  // Enters all rows, computes those of `alive` (all if empty), and gives the logits of each computed row.
  std::vector<std::vector<float>> run(const std::vector<PathUpdate>& updates, const std::vector<Row>& rows,
                                      std::vector<Row> alive = {}) {
    if (alive.empty()) alive = rows;
    std::vector<float> hidden(alive.size() * static_cast<size_t>(model_.hparams().d_model));
    for (const auto& stage : stages_) {
      stage->enter(updates, rows);
      stage->run(alive, hidden);
    }
    const auto vocab = static_cast<size_t>(model_.hparams().n_vocab);
    std::vector<float> logits(alive.size() * vocab);
    stages_.back()->logits(hidden, logits);
    std::vector<std::vector<float>> out;
    for (size_t i = 0; i < alive.size(); ++i) {
      out.emplace_back(logits.begin() + static_cast<int64_t>(i * vocab),
                       logits.begin() + static_cast<int64_t>((i + 1) * vocab));
    }
    return out;
  }

 private:
  const ModelFile& model_;
  std::vector<std::unique_ptr<StageRunner>> stages_;
};

inline Row make_row(int32_t sequence, Token token, int32_t position, int32_t cell, int32_t parent,
                    Row::Kind kind = Row::Kind::kNode) {
  return {SequenceId(sequence), token, position, Cell(cell), Cell(parent), kind, 0};
}

// Teacher-forced logits of a text, [token][n_vocab], fed as prompt rows in chunks of `width`.
inline std::vector<std::vector<float>> text_logits(Pipeline& pipeline, std::span<const Token> tokens, int32_t width,
                                                   int32_t sequence = 0) {
  pipeline.update({Open{SequenceId(sequence), {}}});
  std::vector<std::vector<float>> out;
  const auto n = static_cast<int32_t>(tokens.size());
  for (int32_t first = 0; first < n; first += width) {
    std::vector<Row> rows;
    for (int32_t i = first; i < std::min(n, first + width); ++i) {
      rows.push_back(make_row(sequence, tokens[static_cast<size_t>(i)], i, i, i - 1, Row::Kind::kPrompt));
    }
    for (auto& row : pipeline.run({}, rows)) out.push_back(std::move(row));
  }
  pipeline.update({Close{SequenceId(sequence)}});
  return out;
}

}  // namespace sluice::test
