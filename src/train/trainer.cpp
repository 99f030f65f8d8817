#include "train/trainer.h"

#include <ATen/autocast_mode.h>
#include <spdlog/fmt/fmt.h>
#include <torch/version.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <utility>

#include "base/hash.h"
#include "base/random.h"
#include "model/head_file.h"
#include "train/checkpoint.h"
#include "train/draft_vocabulary.h"

namespace sluice {

namespace fs = std::filesystem;

double learning_rate(const TrainOptions& options, double share) {
  if (share < options.warmup) return options.lr * share / options.warmup;
  return options.lr * std::max(0.0, (1.0 - share) / (1.0 - options.warmup));
}

// A Feistel cipher over the next power of four, walked until it falls below n: a permutation without its table.
size_t example_at(uint64_t i, size_t n, uint64_t seed) {
  const auto epoch = static_cast<uint32_t>(i / n);
  uint32_t half_bits = 1;
  while ((uint64_t{1} << (2 * half_bits)) < n) ++half_bits;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t x = i % n;
  do {
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint32_t round = 0; round < 4; ++round) {
      const auto words = philox4x32({static_cast<uint32_t>(right), round, epoch, 0x7a17u},
                                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
      left = std::exchange(right, (left ^ words[0]) & mask);
    }
    x = (left << half_bits) | right;
  } while (x >= n);
  return static_cast<size_t>(x);
}

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// log.jsonl: one object a line. Lines after the checkpoint that a run goes on from are dropped.
class Log {
 public:
  static Result<Log> open(const std::string& path, int64_t steps) {
    Log log;
    std::string kept;
    {
      std::ifstream before(path);
      for (std::string line; steps > 0 && std::getline(before, line);) {
        const json j = json::parse(line, nullptr, false);
        if (j.is_object() && j.value("step", int64_t{0}) <= steps) kept += (log.last_ = line) + '\n';
      }
    }
    log.path_ = path;
    log.file_.open(path, std::ios::trunc);
    if (!(log.file_ << kept << std::flush)) return runtime_error(path + ": can't be written");
    return log;
  }
  // A finished run that is called again has nothing to add to its last line.
  Status write(const json& entry) {
    const std::string line = entry.dump();
    if (line == std::exchange(last_, line)) return {};
    if (!(file_ << line << '\n' << std::flush))
      return runtime_error(path_ + ": can't be written (is the disk full?); the last checkpoint is kept");
    return {};
  }

 private:
  std::string path_, last_;
  std::ofstream file_;
};

// While it lives, products take bfloat16 if asked to.
class ProductPrecision {
 public:
  explicit ProductPrecision(bool bf16) : bf16_(bf16) {
    if (bf16_) set(true);
  }
  ProductPrecision(const ProductPrecision&) = delete;
  ProductPrecision& operator=(const ProductPrecision&) = delete;
  ~ProductPrecision() {
    if (!bf16_) return;
    set(false);
    at::autocast::clear_cache();  // of converted parameters, which change next
  }

 private:
  static void set(bool on) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
    at::autocast::set_autocast_enabled(at::kCPU, on);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
#else
    at::autocast::set_cpu_enabled(on);
    at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
#endif
  }
  bool bf16_;
};

class Training {
 public:
  Training(Trainee& trainee, const ModelFile& model, const Corpus& corpus, const TrainOptions& options,
           const TrainHooks& hooks, const std::function<Status()>& write_head, Capture capture)
      : trainee_(trainee),
        model_(model),
        corpus_(corpus),
        options_(options),
        hooks_(hooks),
        write_head_(write_head),
        capture_(std::move(capture)),
        optimizer_(trainee.parameters(), {.beta2 = options.beta2, .weight_decay = options.weight_decay}),
        n_examples_(corpus.train.size()) {}

  Result<TrainFigures> run() {
    SLUICE_TRY_STATUS(begin());
    SLUICE_TRY(log_, Log::open((fs::path(options_.out) / "log.jsonl").string(), optimizer_.steps()));
    const auto begin = Clock::now();
    started_at_ = tokens_;
    if (tokens_ == 0) SLUICE_TRY_STATUS(evaluate());
    while (tokens_ < options_.tokens && !hooks_.interrupted()) {
      SLUICE_TRY_STATUS(step());
      figures_.seconds = seconds_since(begin);
      hooks_.progress(std::min(1.0, static_cast<double>(tokens_) / static_cast<double>(options_.tokens)), note());
      if (due(options_.evaluate_every, last_tokens_) && tokens_ < options_.tokens) SLUICE_TRY_STATUS(evaluate());
      if (due(options_.checkpoint_every, last_tokens_)) SLUICE_TRY_STATUS(save());
    }
    SLUICE_TRY_STATUS(save());
    if (tokens_ >= options_.tokens) SLUICE_TRY_STATUS(evaluate());
    figures_.tokens = tokens_;
    figures_.seconds = seconds_since(begin);
    return figures_;
  }

 private:
  std::string checkpoint_path() const { return (fs::path(options_.out) / "checkpoint.gguf").string(); }

  Status begin() {
    if (fs::exists(checkpoint_path())) {
      SLUICE_TRY(const json state, load_checkpoint(checkpoint_path(), trainee_.parameters(), optimizer_));
      if (state["corpus"] != corpus_.settings || state["examples"] > corpus_.train.size())
        return input_error(checkpoint_path() + ": was trained on another corpus; name another --out");
      const json now = settings(), before = state.value("settings", json::object());
      for (const auto& [key, value] : now.items())
        if (before.contains(key) && before[key] != value)
          return input_error(fmt::format("{}: was trained with {} {}, not {}; name another --out", checkpoint_path(),
                                         key, before[key].dump(), value.dump()));
      tokens_ = state["tokens"];
      place_ = state["place"];
      n_examples_ = state["examples"];  // the corpus may have grown
      return {};
    }
    if (!options_.from.empty()) {
      SLUICE_TRY(const auto before, HeadFile::open(options_.from, model_));
      return load_weights(options_.from, trainee_.parameters(), before.parameters().vocabulary, trainee_.vocabulary());
    }
    trainee_.begin([&](size_t i) { return capture_.run(corpus_.train[example_at(i, n_examples_, options_.seed)]); },
                   n_examples_);
    return {};
  }

  bool due(int64_t every, int64_t before) const { return tokens_ / every > before / every; }

  const Example& example(uint64_t place) const { return corpus_.train[example_at(place, n_examples_, options_.seed)]; }

  // The target runs on the next example while this one is trained on.
  Captured captured() {
    const auto begin = Clock::now();
    Captured now = next_.valid() ? next_.get() : capture_.run(example(place_));
    ++place_;
    if (options_.overlap)
      next_ = std::async(std::launch::async, [this, place = place_] { return capture_.run(example(place)); });
    figures_.capture_seconds += seconds_since(begin);
    return now;
  }

  int64_t positions(uint64_t place) const {
    const Example& e = example(place);
    return std::max<int64_t>(
        0, std::min<int64_t>(static_cast<int64_t>(e.tokens.size()), options_.max_tokens) - e.n_prompt);
  }

  Status step() {
    int64_t count = 0;
    for (int32_t i = 0; i < options_.batch; ++i) count += positions(place_ + static_cast<uint64_t>(i));
    LossFigures loss;
    for (int32_t i = 0; i < options_.batch; ++i) {
      const uint64_t draw = options_.seed * 0x9e3779b97f4a7c15u + place_;
      const Captured example = captured();
      const ProductPrecision precision(options_.dtype == Precision::kBf16);
      const LossFigures one =
          trainee_.accumulate(example, draw, 1.0 / static_cast<double>(std::max<int64_t>(1, count)));
      loss.sum += one.sum;
      loss.count += one.count;
    }
    const double mean = loss.sum / static_cast<double>(std::max<int64_t>(1, loss.count));
    const double norm = optimizer_.gradient_norm();
    if (!std::isfinite(mean) || !std::isfinite(norm))
      return runtime_error(fmt::format(
          "the loss is not finite at step {}: {} with a lower --lr or --clip", optimizer_.steps() + 1,
          fs::exists(checkpoint_path()) ? checkpoint_path() + " keeps what was trained before; go on from it"
                                        : "nothing had been saved yet; begin again"));
    last_tokens_ = tokens_;
    tokens_ += loss.count;
    const double lr = learning_rate(options_, static_cast<double>(tokens_) / static_cast<double>(options_.tokens));
    optimizer_.step(lr, norm > options_.clip ? options_.clip / norm : 1.0);
    loss_ = mean;
    return log_->write({{"step", optimizer_.steps()},
                        {"tokens", tokens_},
                        {"loss", mean},
                        {"lr", lr},
                        {"gradient", norm},
                        {"seconds", figures_.seconds}});
  }

  std::string note() const {
    return fmt::format("{} tokens, loss {:.3f}, {:.0f} tokens/s", tokens_, loss_,
                       static_cast<double>(tokens_ - started_at_) / std::max(1e-9, figures_.seconds));
  }

  Status evaluate() {
    if (next_.valid()) next_.wait();  // there is one pipeline
    const auto n = std::min(corpus_.held_out.size(), static_cast<size_t>(options_.held_out));
    for (size_t i = 0; i < n; ++i) trainee_.evaluate(capture_.run(corpus_.held_out[i]));
    figures_.evaluation = trainee_.summary();
    figures_.evaluation["coverage"] = coverage(std::span(corpus_.held_out).first(n), trainee_.vocabulary());
    if (write_head_) SLUICE_TRY_STATUS(write_head_());
    return log_->write({{"step", optimizer_.steps()}, {"tokens", tokens_}, {"evaluation", figures_.evaluation}});
  }

  Status save() {
    return save_checkpoint(checkpoint_path(), trainee_.parameters(), optimizer_,
                           {{"step", optimizer_.steps()},
                            {"tokens", tokens_},
                            {"place", place_},
                            {"examples", n_examples_},
                            {"corpus", corpus_.settings},
                            {"settings", settings()}});
  }

  // What may not change while a run goes on.
  json settings() const {
    json settings = trainee_.settings();
    const uint64_t vocabulary = fnv1a(std::as_bytes(std::span(trainee_.vocabulary())));
    settings.update({{"seed", options_.seed},
                     {"batch", options_.batch},
                     {"max_length", options_.max_tokens},
                     {"vocabulary", fmt::format("{:016x}", vocabulary)}});
    return settings;
  }

  Trainee& trainee_;
  const ModelFile& model_;
  const Corpus& corpus_;
  const TrainOptions& options_;
  const TrainHooks& hooks_;
  const std::function<Status()>& write_head_;
  Capture capture_;
  AdamW optimizer_;
  std::optional<Log> log_;
  size_t n_examples_;
  uint64_t place_ = 0;  // of the next example
  int64_t tokens_ = 0, last_tokens_ = 0, started_at_ = 0;
  double loss_ = 0;
  std::future<Captured> next_;
  TrainFigures figures_;
};

}  // namespace

Result<TrainFigures> train(Trainee& trainee, const ModelFile& model, const Corpus& corpus, const TrainOptions& options,
                           const TrainHooks& hooks, const std::function<Status()>& write_head) {
  if (corpus.train.empty())
    return input_error(options.corpora.front() + ": holds nothing to train on; see sluice train data");
  std::error_code error;
  fs::create_directories(options.out, error);
  if (error) return input_error("--out " + options.out + ": can't be made");
  SLUICE_TRY(auto capture, Capture::create(model, {.taps = trainee.taps(),
                                                   .max_tokens = options.max_tokens,
                                                   .threads = std::max(1, options.threads)}));
  return Training(trainee, model, corpus, options, hooks, write_head, std::move(capture)).run();
}

}  // namespace sluice
