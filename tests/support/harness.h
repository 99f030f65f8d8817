// Engines on small models for tests that look at whole answers, and plain decoding to compare them with.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/engine.h"
#include "support/tiny_model.h"
#include "transport/address.h"

namespace sluice::test {

// Reproducible choices: the n-th one is a function of the seed and n.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  double uniform() { return sluice::uniform({.seed = seed_, .position = next_++, .purpose = Purpose::kTest}, 0); }
  int32_t below(int32_t n) { return static_cast<int32_t>(uniform() * n); }
  int32_t between(int32_t low, int32_t high) { return low + below(high - low + 1); }
  bool chance(double p) { return uniform() < p; }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int32_t>(choices.size()))];
  }

 private:
  uint64_t seed_;
  uint32_t next_ = 0;
};

struct Opened {
  ModelFile model;
  Tokenizer tokenizer;
};
Opened open(const std::string& path);
// The tiny model of a spec, written and opened once a program under this name.
const Opened& open_tiny(const std::string& name, const TinyModelSpec& spec);
// 30 narrow layers, so that it can be cut as finely as the default model; answers that n-grams guess now and then.
const Opened& thirty_layers();
// 6 layers, the same otherwise.
const Opened& six_layers();
// The first layers of it, which guess what it says now and then.
const Opened& five_layers();
const Opened& two_layers();
// 6 layers of this family, with experts if it knows them, and the same words.
const Opened& sharing_layers();  // sharing_model()
const Opened& six_layers_of(const std::string& architecture);

// How a pipeline is put together.
struct PipelineSpec {
  int32_t stages = 1;
  std::vector<int32_t> cuts;  // if not empty, instead of `stages`: first layers of the second, third, … stage
  bool threads = false;       // else virtual
  bool lazy = false;
  std::vector<const Opened*> drafts;  // the smallest first
  const HeadFile* head = nullptr;
  std::vector<HostAddress> hosts, spares;  // one a stage; none: they are in this process
  std::optional<HostAddress> head_host;    // likewise
  std::function<void(const std::string&)> on_host = [](const std::string&) {};
  int32_t guesses = 4;              // of a P-EAGLE head, in a row
  bool paced = false;               // threads at the pace of `profile`
  std::string profile = "uniform";  // a shipped one, or JSON
  Jitter jitter;
  Faults faults;
  KvType kv = KvType::kF16;
  std::vector<std::string> devices;  // of the stages: one for all, or one each; none: the CPU
  Activations activations = Activations::kF32;
  int32_t context = 256, n_cells = 0;  // 0 cells: room for four requests and wide trees
  Folding folding;
  int32_t kept_behind = kKeptBehind;  // REQUIRES: no less than the row budget
  Scheduler::Options scheduler;
  bool trace = false;
  int64_t first_batch = 0;
};
std::vector<LayerRange> cuts_of(const Opened& opened, const PipelineSpec& setup);
std::string describe(const PipelineSpec& setup);
std::string describe(const RequestSpec& spec);

std::unique_ptr<Executor> make_executor(const Opened& opened, const PipelineSpec& setup);
// `wrap`: puts something around the executor, for instance an ear.
std::unique_ptr<Engine> make_engine(
    const Opened& opened, const PipelineSpec& setup,
    const std::function<std::unique_ptr<Executor>(std::unique_ptr<Executor>)>& wrap = {});

// Submits and steps; errors end the test program.
RequestId submit(Engine& engine, const RequestSpec& spec);
void finish(Engine& engine);  // until nothing is running
std::vector<Token> answer(const Engine& engine, RequestId id);

// What the answer must be: one row at a time through a single stage, each token drawn from its logits. No tree, no
// verifier, no worker takes part. Ends as a request with these limits does. rounded: the layers after which states are.
std::vector<Token> plain_decoding(const Opened& opened, const RequestSpec& spec, KvType kv = KvType::kF16,
                                  int32_t context = 256, const std::vector<int32_t>& rounded = {},
                                  const std::string& device = kCpuDevice);

}  // namespace sluice::test
