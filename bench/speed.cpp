// How fast one StageRunner decodes and prefills: the figures that bench/vs_llama.py sets beside llama-bench.
//
//   speed -m FILE [--threads N] [--prompt N] [--decode N] [--repeat N] [--kv f16|f32|q8_0] [--device ggml:NAME
//   [--width-lock N]]
//
// Prints one JSON object: medians over the repetitions.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "compute/kernels/kernels.h"
#include "compute/stage_runner.h"

namespace {

using namespace sluice;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One sequence that is filled with pseudo-random tokens.
class Stream {
 public:
  explicit Stream(const ModelFile& model, StageRunner& runner) : model_(model), runner_(runner) {}

  void restart() {
    std::vector<PathUpdate> updates;
    if (sequence_ >= 0) updates.push_back(Close{SequenceId(sequence_)});
    updates.push_back(Open{SequenceId(++sequence_), {}});
    runner_.enter(updates, {});
    length_ = 0;
  }

  // The next n tokens in one batch; logits of the last one.
  void feed(int32_t n) {
    std::vector<Row> rows(static_cast<size_t>(n));
    for (Row& row : rows) {
      row.sequence = SequenceId(sequence_);
      row.token = static_cast<Token>((length_ * 7919LL + 13) % model_.hparams().n_vocab);
      row.position = length_;
      row.cell = Cell(length_);
      row.parent = Cell(length_ - 1);
      row.kind = Row::Kind::kPrompt;
      ++length_;
    }
    const auto d = static_cast<size_t>(model_.hparams().d_model);
    hidden_.resize(rows.size() * d);
    logits_.resize(static_cast<size_t>(model_.hparams().n_vocab));
    runner_.enter({}, rows);
    runner_.run(rows, hidden_);
    runner_.logits(std::span<const float>(hidden_).last(d), logits_);
  }

  void prefill(int32_t n, int32_t chunk) {
    for (int32_t done = 0; done < n; done += chunk) feed(std::min(chunk, n - done));
  }

 private:
  const ModelFile& model_;
  StageRunner& runner_;
  int32_t sequence_ = -1, length_ = 0;
  std::vector<float> hidden_, logits_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Speed of one stage that holds the whole model"};
  std::string path, kv = "f16";
  int32_t threads = 1, prompt = 512, decode = 64, repeat = 3;
  app.add_option("-m,--model", path, "GGUF file")->required();
  app.add_option("--threads", threads, "CPU threads")->capture_default_str();
  app.add_option("--prompt", prompt, "tokens of prefill")->capture_default_str();
  app.add_option("--decode", decode, "tokens decoded after the prompt")->capture_default_str();
  app.add_option("--repeat", repeat, "repetitions")->capture_default_str();
  app.add_option("--kv", kv, "KV type")->check(CLI::IsMember({"f16", "f32", "q8_0"}))->capture_default_str();
  StageOptions options;
  app.add_option("--device", options.device, "cpu, or a device of ggml's")->capture_default_str();
  app.add_option("--width-lock", options.width_lock, "rows of its passes; 0: no lock")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (!kernels::use_kernels_of_environment()) return 2;

  const auto model = ModelFile::open(path);
  if (!model) return std::fprintf(stderr, "%s\n", model.error().message.c_str()), 2;
  options.range = {0, model->hparams().n_layers};
  options.kv = kv == "f16" ? KvType::kF16 : kv == "f32" ? KvType::kF32 : KvType::kQ8_0;
  options.n_cells = prompt + decode;
  options.threads = threads;
  const auto load_start = Clock::now();
  auto runner = make_stage_runner(*model, options);
  if (!runner) return std::fprintf(stderr, "%s\n", runner.error().message.c_str()), 2;
  const double load_seconds = seconds_since(load_start);

  Stream stream(*model, **runner);
  std::vector<double> prefill_seconds, decode_seconds;
  for (int32_t i = 0; i < repeat; ++i) {
    stream.restart();
    auto start = Clock::now();
    stream.prefill(prompt, options.max_rows);
    prefill_seconds.push_back(seconds_since(start));
    start = Clock::now();
    for (int32_t token = 0; token < decode; ++token) stream.feed(1);
    decode_seconds.push_back(seconds_since(start));
  }
  const nlohmann::json out = {{"device", options.device},
                              {"exactness", name((*runner)->exactness())},
                              {"threads", threads},
                              {"prompt", prompt},
                              {"decode", decode},
                              {"load_seconds", load_seconds},
                              {"prefill_tokens_per_second", prompt / median(prefill_seconds)},
                              {"decode_ms_per_token", 1e3 * median(decode_seconds) / std::max(decode, 1)}};
  std::printf("%s\n", out.dump().c_str());
  return 0;
}
