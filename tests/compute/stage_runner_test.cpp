// The promise of StageRunner: logits depend on the path alone, to the last bit. Random traffic against plain decoding.
#include "compute/stage_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "compute/decoding.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

// Logits by plain decoding: one stage, one thread, one row at a time.
class PlainDecoding {
 public:
  PlainDecoding(const ModelFile& model, KvType kv, const std::string& device = kCpuDevice)
      : pipeline_(model, {.n_cells = 256, .max_rows = 1, .kv = kv, .devices = {device}}) {}

  const std::vector<float>& after(const std::vector<Token>& path) {
    const auto known = known_.find(path);
    if (known != known_.end()) return known->second;
    pipeline_.update({Open{SequenceId(0), {}}});
    std::vector<float> logits;
    for (int32_t i = 0; i < static_cast<int32_t>(path.size()); ++i) {
      logits = pipeline_.run({}, {make_row(0, path[static_cast<size_t>(i)], i, i, i - 1)})[0];
      pipeline_.update({Commit{SequenceId(0), Cell(i)}});
    }
    pipeline_.update({Close{SequenceId(0)}});
    return known_[path] = logits;
  }

 private:
  Pipeline pipeline_;
  std::map<std::vector<Token>, std::vector<float>> known_;
};

// Plays the coordinator of several requests, at random.
class Traffic {
 public:
  // folds: paths are cut to nothing, if at all.
  Traffic(uint64_t seed, int32_t n_sequences, int32_t n_cells, int32_t n_vocab, bool folds)
      : dice_(seed), n_vocab_(n_vocab), folds_(folds), sequences_(static_cast<size_t>(n_sequences)) {
    for (int32_t cell = 0; cell < n_cells; ++cell) free_.push_back(cell);
    for (int32_t s = 0; s < n_sequences; ++s) updates_.emplace_back(Open{SequenceId(s), {}});
  }

  struct Step {
    std::vector<PathUpdate> updates;
    std::vector<Row> rows, alive;
    std::vector<std::vector<Token>> paths;  // of the alive rows
  };

  Step next() {
    Step step;
    std::vector<std::vector<Planned>> by_sequence;
    for (int32_t s = 0; s < static_cast<int32_t>(sequences_.size()); ++s) {
      change_path(s);
      by_sequence.push_back(plan_rows(s));
    }
    step.updates = std::move(updates_);
    updates_.clear();
    for (std::vector<size_t> next(by_sequence.size(), 0);;) {  // a random merge
      std::vector<size_t> open;
      for (size_t s = 0; s < next.size(); ++s) {
        if (next[s] < by_sequence[s].size()) open.push_back(s);
      }
      if (open.empty()) break;
      const size_t s = open[static_cast<size_t>(dice_.below(static_cast<int32_t>(open.size())))];
      const Planned& planned = by_sequence[s][next[s]++];
      step.rows.push_back(planned.row);
      if (!planned.computed) continue;
      step.alive.push_back(planned.row);
      step.paths.push_back(planned.path);
    }
    return step;
  }

 private:
  struct Node {
    int32_t cell, position, parent_cell;
    std::vector<Token> path;
  };
  struct Planned {
    Row row;
    bool computed;
    std::vector<Token> path;
  };
  struct Sequence {
    std::vector<Node> committed, tree;  // the tree in an order in which parents come first
  };

  int32_t take_cell() {
    const auto i = static_cast<size_t>(dice_.below(static_cast<int32_t>(free_.size())));
    std::swap(free_[i], free_.back());
    const int32_t cell = free_.back();
    free_.pop_back();
    return cell;
  }

  void drop_tree(Sequence& sequence) {
    for (const Node& node : sequence.tree) free_.push_back(node.cell);
    sequence.tree.clear();
  }

  // Commits a node and prunes, or truncates, or does nothing.
  void change_path(int32_t s) {
    Sequence& sequence = sequences_[static_cast<size_t>(s)];
    if (sequence.committed.empty()) return;
    if (dice_.uniform() < 0.1) {
      drop_tree(sequence);
      auto length = static_cast<size_t>(dice_.below(static_cast<int32_t>(sequence.committed.size()))) + 1;
      if (folds_) length = length % 2 == 0 ? 0 : sequence.committed.size();
      while (sequence.committed.size() > length) {
        free_.push_back(sequence.committed.back().cell);
        sequence.committed.pop_back();
      }
      updates_.emplace_back(Truncate{SequenceId(s), static_cast<int32_t>(length), {}});
      return;
    }
    const auto chosen = std::find_if(sequence.tree.begin(), sequence.tree.end(), [&](const Node& node) {
      return node.parent_cell == sequence.committed.back().cell && dice_.uniform() < 0.6;
    });
    if (chosen == sequence.tree.end()) return;
    const Node root = *chosen;
    updates_.emplace_back(Commit{SequenceId(s), Cell(root.cell)});
    sequence.committed.push_back(root);
    std::vector<Node> kept;
    for (const Node& node : sequence.tree) {
      if (node.cell == root.cell) continue;
      const bool below = node.path.size() > root.path.size() &&
                         std::equal(root.path.begin(), root.path.end(), node.path.begin()) &&
                         descends(sequence.tree, node, root.cell);
      if (below) {
        kept.push_back(node);
      } else {
        free_.push_back(node.cell);
      }
    }
    sequence.tree = kept;
  }

  static bool descends(const std::vector<Node>& tree, const Node& node, int32_t root_cell) {
    int32_t cell = node.parent_cell;
    while (cell != root_cell) {
      const auto parent = std::find_if(tree.begin(), tree.end(), [&](const Node& n) { return n.cell == cell; });
      if (parent == tree.end()) return false;
      cell = parent->parent_cell;
    }
    return true;
  }

  std::vector<Planned> plan_rows(int32_t s) {
    Sequence& sequence = sequences_[static_cast<size_t>(s)];
    std::vector<Planned> out;
    const bool prompt = sequence.committed.empty() || dice_.uniform() < 0.15;
    if (prompt) drop_tree(sequence);
    for (int32_t n = prompt ? 1 + dice_.below(12) : dice_.below(7); n > 0 && free_.size() > 4; --n) {
      std::optional<Node> parent;
      if (!sequence.committed.empty()) parent = sequence.committed.back();
      const auto choices = static_cast<int32_t>(sequence.tree.size()) + 1;
      if (const int32_t choice = dice_.below(choices); !prompt && choice > 0)
        parent = sequence.tree[static_cast<size_t>(choice - 1)];
      Node node{take_cell(), parent ? parent->position + 1 : 0, parent ? parent->cell : -1,
                parent ? parent->path : std::vector<Token>()};
      node.path.push_back(dice_.below(n_vocab_));
      const auto kind = prompt ? Row::Kind::kPrompt : Row::Kind::kNode;
      const bool computed = prompt || dice_.uniform() < 0.85;
      out.push_back(
          {make_row(s, node.path.back(), node.position, node.cell, node.parent_cell, kind), computed, node.path});
      if (!computed) {
        held_.push_back(node.cell);  // cancelled: its cell is given out again only with a later batch
      } else {
        (prompt ? sequence.committed : sequence.tree).push_back(node);
      }
    }
    if (s + 1 == static_cast<int32_t>(sequences_.size())) {
      free_.insert(free_.end(), held_.begin(), held_.end());
      held_.clear();
    }
    return out;
  }

  Dice dice_;
  int32_t n_vocab_;
  bool folds_;
  std::vector<int32_t> free_, held_;
  std::vector<Sequence> sequences_;
  std::vector<PathUpdate> updates_;
};

struct Case {
  const char* name;
  TinyModelSpec spec;
  Pipeline::Options options;
  int32_t n_sequences;
};

TEST(StageRunner, LogitsOfRandomTrafficEqualPlainDecodingToTheLastBit) {
  TinyModelSpec wide{.n_layers = 2, .d_model = 256, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .d_ff = 512};
  TinyModelSpec q4_1 = wide, q8_0 = wide, q4_k = wide, q3_k = wide, nvfp4 = wide, mxfp4 = wide, bf16 = wide;
  q4_1.type = GGML_TYPE_Q4_1;
  q8_0.type = GGML_TYPE_Q8_0;
  q4_k.type = GGML_TYPE_Q4_K;
  q3_k.type = GGML_TYPE_Q3_K;
  nvfp4.type = GGML_TYPE_NVFP4;
  mxfp4.type = GGML_TYPE_MXFP4;
  bf16.type = GGML_TYPE_BF16;
  const Case cases[] = {
      {"f32 llama, one stage", {}, {}, 1},
      {"f32 llama, four stages, two threads", {}, {.cuts = {1, 2, 3}, .threads = 2}, 3},
      {"qwen2, f16 cells, three threads",
       {.architecture = "qwen2"},
       {.cuts = {2}, .threads = 3, .kv = KvType::kF16},
       2},
      {"qwen3, two stages", {.architecture = "qwen3", .head_dim = 24}, {.cuts = {3}, .threads = 2}, 2},
      {"qwen3, cells of bytes", {.architecture = "qwen3"}, {.cuts = {1}, .threads = 3, .kv = KvType::kQ8_0}, 3},
      {"heads of 24, cells of bytes", {.head_dim = 24}, {.threads = 2, .kv = KvType::kQ8_0}, 2},
      {"Q4_1", q4_1, {.cuts = {1}, .threads = 2, .kv = KvType::kF16}, 3},
      {"Q8_0", q8_0, {.threads = 3}, 2},
      {"Q4_K", q4_k, {.cuts = {1}, .threads = 2}, 2},
      {"BF16", bf16, {.threads = 2}, 2},
      {"experts of llama", with_experts({}, "llama"), {.cuts = {1, 2}, .threads = 2}, 3},
      {"experts of qwen2moe, three threads", with_experts({}, "qwen2moe"), {.cuts = {2}, .threads = 3}, 2},
      {"experts of qwen2moe, Q4_K", with_experts(q4_k, "qwen2moe"), {.threads = 2, .kv = KvType::kF16}, 3},
      {"experts of qwen3moe, Q8_0", with_experts(q8_0, "qwen3moe"), {.cuts = {1}}, 2},
      {"experts of glm4moe, Q8_0", with_experts(q8_0, "glm4moe"), {.cuts = {1}, .threads = 3}, 3},
      {"experts that wait", with_experts({}, "qwen2moe"), {.cuts = {1}, .threads = 3, .experts_wait = true}, 3},
      {"experts that wait, Q4_K", with_experts(q4_k, "qwen3moe"), {.threads = 2, .experts_wait = true}, 2},
      {"experts with biases that wait",
       with_experts(mxfp4, "gpt-oss"),
       {.cuts = {2}, .threads = 2, .experts_wait = true},
       3},
      {"experts beside a dense network that wait", with_experts(q8_0, "gemma4"), {.experts_wait = true}, 2},
      {"gpt-oss, MXFP4", with_experts(mxfp4, "gpt-oss"), {.cuts = {1}, .threads = 2, .kv = KvType::kF16}, 3},
      {"experts of qwen3moe, Q3_K", with_experts(q3_k, "qwen3moe"), {.threads = 2}, 2},
      {"experts of qwen3moe, NVFP4 by ggml's products", with_experts(nvfp4, "qwen3moe"), {.threads = 2}, 2},
      {"f32 llama on ggml:cpu, one stage", {}, {.devices = {"ggml:cpu"}}, 1},
      {"qwen2, f16 cells on ggml:cpu, three stages",
       {.architecture = "qwen2"},
       {.cuts = {1, 2}, .kv = KvType::kF16, .devices = {"ggml:cpu"}},
       3},
      {"qwen3 on ggml:cpu", {.architecture = "qwen3", .head_dim = 24}, {.cuts = {3}, .devices = {"ggml:cpu"}}, 2},
      {"Q4_1 on ggml:cpu", q4_1, {.cuts = {1}, .kv = KvType::kF16, .devices = {"ggml:cpu"}}, 3},
      {"Q4_K on ggml:cpu", q4_k, {.devices = {"ggml:cpu"}}, 2},
      {"deepseek2 in two stages", with_experts({}, "deepseek2"), {.cuts = {2}, .threads = 3}, 3},
      {"deepseek2, Q8_0", with_experts(q8_0, "deepseek2"), {.threads = 2, .kv = KvType::kF16}, 3},
      {"deepseek2, cells of bytes", with_experts({}, "deepseek2"), {.cuts = {2}, .kv = KvType::kQ8_0}, 2},
      {"gemma4, shared keys of bytes", sharing_model({}), {.cuts = {1, 3, 4}, .threads = 2, .kv = KvType::kQ8_0}, 3},
      {"deepseek2 on ggml:cpu", with_experts(q8_0, "deepseek2"), {.cuts = {1}, .devices = {"ggml:cpu"}}, 2},
      {"gemma2, Q8_0", of_family(q8_0, "gemma2"), {.cuts = {1}, .threads = 2, .kv = KvType::kF16}, 3},
      {"gemma3 in three stages", of_family({}, "gemma3"), {.cuts = {1, 2}, .threads = 3}, 3},
      {"gemma3 on ggml:cpu", of_family({}, "gemma3"), {.cuts = {1, 2}, .devices = {"ggml:cpu"}}, 2},
      {"qwen3next in two stages", of_family({.n_layers = 6}, "qwen3next"), {.cuts = {2}, .threads = 3}, 3},
      {"qwen35, Q8_0", of_family(q8_0, "qwen35"), {.threads = 2, .kv = KvType::kF16}, 2},
      {"qwen35, one thread", of_family({.delta_head_dim = 8}, "qwen35"), {.cuts = {1, 2, 3}}, 3},
      {"qwen35moe, Q8_0", of_family(q8_0, "qwen35moe"), {.cuts = {1}, .threads = 2}, 3},
      {"gemma4 in three stages", of_family({.n_layers = 6}, "gemma4"), {.cuts = {1, 4}, .threads = 3}, 3},
      {"gemma4, Q8_0", of_family(q8_0, "gemma4"), {.cuts = {1}, .threads = 2, .kv = KvType::kF16}, 2},
      {"gemma4, shared keys", sharing_model({}), {.cuts = {1, 3, 4}, .threads = 2, .kv = KvType::kF16}, 3},
      {"gemma4, shared keys, heads of 20", sharing_model({.head_dim = 20}), {}, 2},
      {"qwen3next on ggml:cpu", of_family({.n_layers = 6}, "qwen3next"), {.cuts = {2}, .devices = {"ggml:cpu"}}, 3},
      {"qwen35, Q8_0, on ggml:cpu",
       of_family(q8_0, "qwen35"),
       {.cuts = {1}, .threads = 2, .kv = KvType::kF16, .devices = {"ggml:cpu"}},
       2},
      {"gemma4 on ggml:cpu", of_family({.n_layers = 6}, "gemma4"), {.cuts = {1, 4}, .devices = {"ggml:cpu"}}, 2},
      {"gemma4, Q8_0 on ggml:cpu", of_family(q8_0, "gemma4"), {.cuts = {1}, .devices = {"ggml:cpu"}}, 2},
      {"gemma4, shared keys on ggml:cpu",
       sharing_model({}),
       {.cuts = {1, 3, 4}, .kv = KvType::kF16, .devices = {"ggml:cpu"}},
       3},
      {"gpt-oss on ggml:cpu", with_experts({}, "gpt-oss"), {.cuts = {1, 2}, .devices = {"ggml:cpu"}}, 2},
      {"experts on ggml:cpu", with_experts(q8_0, "qwen2moe"), {.cuts = {1}, .devices = {"ggml:cpu"}}, 2},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const ModelFile model = open_model(write_tiny_model(c.spec, temp_path("traffic.gguf")));
    PlainDecoding plain(model, c.options.kv, c.options.devices.front());
    Pipeline::Options options = c.options;
    options.n_cells = 120;
    Pipeline pipeline(model, options);
    Traffic traffic(17, c.n_sequences, options.n_cells, model.hparams().n_vocab, model.hparams().folds());
    const bool ours = options.devices.front() == kCpuDevice;
    size_t compared = 0, different = 0;
    for (int step = 0; step < (ours ? 40 : 12); ++step) {  // others pay for 16 rows where there is one
      const Traffic::Step s = traffic.next();
      if (s.alive.empty()) {
        for (const PathUpdate& update : s.updates) pipeline.update({update});
        continue;
      }
      const auto logits = pipeline.run(s.updates, s.rows, s.alive);
      for (size_t i = 0; i < s.alive.size(); ++i, ++compared) different += logits[i] != plain.after(s.paths[i]);
    }
    EXPECT_EQ(different, 0u) << "of " << compared;
    EXPECT_GT(compared, ours ? 50u : 20u);
  }
}

// Sequences that begin with the same cells, and go on each in its own way; their rows share batches.
TEST(StageRunner, RowsOfForksEqualPlainDecoding) {
  const ModelFile model = open_model(write_tiny_model({}, temp_path("forks.gguf")));
  const int32_t n_vocab = model.hparams().n_vocab;
  for (const int threads : {1, 3}) {
    Pipeline::Options options{.cuts = {2}, .threads = threads};
    PlainDecoding plain(model, options.kv);
    options.n_cells = 120;
    Pipeline pipeline(model, options);
    Dice dice(3);
    const std::vector<Token> prompt = dice.tokens(40, n_vocab);
    std::vector<Row> rows;
    for (int32_t i = 0; i < 40; ++i)
      rows.push_back(make_row(0, prompt[static_cast<size_t>(i)], i, i, i - 1, Row::Kind::kPrompt));
    pipeline.run({Open{SequenceId(0), {}}}, rows, rows);

    std::vector<PathUpdate> updates;
    std::vector<std::vector<Token>> paths;
    rows.clear();
    int32_t cell = 40, sequence = 0;
    for (const int32_t length : {40, 40, 33, 39, 8, 0, 40, 40, 40, 16, 40}) {
      if (sequence > 0) updates.emplace_back(Fork{SequenceId(sequence), SequenceId(0), length, {}});
      std::vector<Token> path(prompt.begin(), prompt.begin() + length);
      int32_t parent = length - 1;
      for (int32_t n = dice.below(3); n >= 0; --n) {  // a chain
        path.push_back(dice.below(n_vocab));
        rows.push_back(make_row(sequence, path.back(), static_cast<int32_t>(path.size()) - 1, cell, parent));
        paths.push_back(path);
        parent = cell++;
      }
      ++sequence;
    }
    const auto logits = pipeline.run(updates, rows, rows);
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(logits[i], plain.after(paths[i])) << "row " << i;
  }
}

TEST(StageRunner, PromptsInChunksOfAnyWidthEqualPlainDecoding) {
  TinyModelSpec spec{.n_layers = 2, .d_model = 256, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .d_ff = 512};
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_Q6_K}) {
    spec.type = type;
    const ModelFile model = open_model(write_tiny_model(spec, temp_path("chunks.gguf")));
    const std::vector<Token> tokens = Dice(2).tokens(200, model.hparams().n_vocab);
    Pipeline pipeline(model, {.threads = 2});
    const auto plain = text_logits(pipeline, tokens, 1);
    for (const int32_t width : {2, 3, 8, 17, 64, 200}) {
      EXPECT_EQ(text_logits(pipeline, tokens, width), plain) << ggml_type_name(type) << ", chunks of " << width;
    }
  }
}

TEST(StageRunner, TapsAreTheHiddenStatesBetweenLayers) {
  const ModelFile model = open_model(write_tiny_model({}, temp_path("taps.gguf")));
  const auto d = static_cast<size_t>(model.hparams().d_model);
  const std::vector<Row> rows = {make_row(0, 5, 0, 0, -1, Row::Kind::kPrompt),
                                 make_row(0, 9, 1, 1, 0, Row::Kind::kPrompt)};
  const auto run = [&](LayerRange range, bool embed, std::vector<int32_t> taps, std::vector<float>& hidden) {
    StageOptions options{.range = range, .with_embedding = embed, .with_head = false, .kv = KvType::kF32, .n_cells = 4};
    options.taps = std::move(taps);
    const auto runner = std::move(*make_stage_runner(model, options));
    const PathUpdate open = Open{SequenceId(0), {}};
    runner->enter({&open, 1}, rows);
    runner->run(rows, hidden);
    std::vector<std::vector<float>> out;
    for (size_t i = 0; i < options.taps.size(); ++i) out.emplace_back(runner->tap(i).begin(), runner->tap(i).end());
    return out;
  };
  std::vector<float> hidden(2 * d);
  const auto whole = run({0, 4}, true, {0, 2, 4}, hidden);
  EXPECT_EQ(whole[2], hidden);
  std::vector<float> half(2 * d);
  run({0, 2}, true, {}, half);
  EXPECT_EQ(whole[1], half);
  std::vector<float> embedded(2 * d);
  run({0, 0}, true, {}, embedded);
  EXPECT_EQ(whole[0], embedded);
}

TEST(StageRunner, ReadsOnlyTheFirstRowsOfTheOutputWhereThatIsAsked) {
  TinyModelSpec spec{.n_layers = 1, .d_model = 256, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .d_ff = 256};
  spec.type = GGML_TYPE_Q4_1;
  const ModelFile model = open_model(write_tiny_model(spec, temp_path("first_rows.gguf")));
  const auto d = static_cast<size_t>(model.hparams().d_model);
  const int32_t n_all = model.n_logits();
  Dice dice(3);
  std::vector<float> hidden(3 * d);
  for (float& x : hidden) x = static_cast<float>(dice.uniform()) - 0.5f;
  const auto logits = [&](int32_t asked, int32_t expected) {
    const auto runner = std::move(*make_stage_runner(
        model, {.range = {0, 1}, .with_head = true, .n_logits = asked, .n_cells = 4, .max_rows = 4, .threads = 2}));
    std::vector<float> out(3 * static_cast<size_t>(expected));
    runner->logits(hidden, out);
    return out;
  };
  const std::vector<float> all = logits(0, n_all);
  EXPECT_EQ(logits(n_all + 7, n_all), all) << "there are no more";
  for (const int32_t n : {1, 16, 37}) {
    const std::vector<float> first = logits(n, n);
    for (size_t row = 0; row < 3; ++row) {
      for (int32_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_EQ(first[row * static_cast<size_t>(n) + at], all[row * static_cast<size_t>(n_all) + at]) << n;
      }
    }
  }
  EXPECT_FALSE(make_stage_runner(model, {.range = {0, 1}, .n_logits = -1, .n_cells = 4}));
}

TEST(StageRunner, RefusesOptionsThatDoNotFitTheModel) {
  const ModelFile model = open_model(write_tiny_model({}, temp_path("options.gguf")));
  EXPECT_FALSE(make_stage_runner(model, {.range = {0, 5}, .n_cells = 4}));
  EXPECT_FALSE(make_stage_runner(model, {.range = {3, 2}, .n_cells = 4}));
  EXPECT_FALSE(make_stage_runner(model, {.range = {0, 4}}));
  EXPECT_FALSE(make_stage_runner(model, {.range = {0, 2}, .n_cells = 4, .taps = {3}}));
  EXPECT_FALSE(make_stage_runner(model, {.range = {0, 2}, .n_cells = 4, .threads = 0}));
  const ModelFile experts = open_model(write_tiny_model(with_experts({}, "qwen3moe"), temp_path("experts.gguf")));
  const auto cramped = make_stage_runner(experts, {.range = {0, 4}, .n_cells = 4, .expert_memory = 1000});
  ASSERT_FALSE(cramped);
  EXPECT_EQ(cramped.error().message, experts.path() +
                                         ": the experts of a layer need 1 MiB of memory, and 1 MiB are left for all: "
                                         "give more by --memory");
  const std::string path = write_tiny_model(sharing_model({}), temp_path("sharing.gguf"));
  for (const char* device : {kCpuDevice, "ggml:cpu"}) {
    const auto refused =
        make_stage_runner(open_model(path), {.range = {5, 9}, .with_embedding = false, .n_cells = 4, .device = device});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message,
              path + ": no stage may begin with layer 5: layer 6 reads keys and values of layer 4");
  }
}

}  // namespace
}  // namespace sluice::test
