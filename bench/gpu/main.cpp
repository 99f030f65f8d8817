// What a device of ggml's costs a pipeline stage, and what its bits depend on. `bench/gpu/run --help` says how.
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

#include "bench.h"

namespace gpu {
namespace {

constexpr const char* kHelp = R"(What a device of ggml's costs a pipeline stage, and what its bits depend on.

gpu_bench [options] WHAT...

  check            a layer's output on the device beside the CPU's
  links            ways between host and device, and what launching a graph costs
  passes           times of a stage's pass by its rows
  heads            times of the output head by its rows
  product-bits     what a row's bits depend on in one product,
  attention-bits   in one attention,
  stage-bits       in a stage of 4 layers

  --device NAME      as --list names it                                   [CPU]
  --list             the devices that ggml has
  --threads N        of the CPU                                           [2]
  --shape A,B        1b, 8b, 70b, 30b-a3b, tiny, tiny-moe                 [8b]
  --type A,B         of weights: f16, bf16, q8_0, q4_0, q4_K, q6_K, ...   [q4_K]
  --attention A,B    flash, plain, gathered                               [flash]
  --rows A,B         of passes and heads                                  [1,2,3,4,5,6,8,9,12,...,512]
  --layers A,B       of passes                                            [4,8]
  --cells N          of the cache, a multiple of 256                      [1024]
  --trials N         of each kind of variation                            [32]
  --seconds S        for each point of passes and heads                   [0.04]
  --plain-graphs     passes without ggml's scheduler
  --json FILE        results, one a line, as they come; added to what is there

SLUICE_GGML names a folder whose libggml-*.so are loaded too.

Examples:
  gpu_bench --list
  gpu_bench --device CUDA0 --json h100.jsonl check links
  gpu_bench --device CUDA0 --shape 70b --layers 4,8 --json h100.jsonl passes
  gpu_bench --device CUDA0 --type f16,q4_K --json h100.jsonl product-bits
  gpu_bench --shape tiny --layers 2 --rows 1,8 passes stage-bits
)";

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> out;
  std::stringstream in(list);
  for (std::string word; std::getline(in, word, ',');) out.push_back(word);
  return out;
}

int number(const std::string& flag, const std::string& text, int least) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || value < least || value > 1 << 20) {
    throw Refusal(flag + " takes numbers from " + std::to_string(least) + ", not " + text);
  }
  return static_cast<int>(value);
}

std::vector<int> numbers(const std::string& flag, const std::string& list) {
  std::vector<int> out;
  for (const std::string& word : words(list)) out.push_back(number(flag, word, 1));
  return out;
}

using Measurement = std::function<void(const Device&, const Options&, Results&)>;

const std::map<std::string, Measurement>& measurements() {
  static const std::map<std::string, Measurement> all = {
      {"check", check},
      {"links", links},
      {"passes", passes},
      {"heads", heads},
      {"product-bits", product_bits},
      {"attention-bits", attention_bits},
      {"stage-bits", stage_bits},
  };
  return all;
}

struct CommandLine {
  Options options;
  std::vector<std::string> what;
  std::string json;
  bool list = false, help = false;
};

CommandLine parse(std::vector<std::string> arguments) {
  CommandLine line;
  Options& o = line.options;
  const std::map<std::string, std::function<void(const std::string&)>> flags = {
      {"--device", [&](const std::string& v) { o.device = v; }},
      {"--threads", [&](const std::string& v) { o.threads = number("--threads", v, 1); }},
      {"--shape", [&](const std::string& v) { o.shapes = words(v); }},
      {"--type", [&](const std::string& v) { o.types = words(v); }},
      {"--attention", [&](const std::string& v) { o.attentions = words(v); }},
      {"--rows", [&](const std::string& v) { o.rows = numbers("--rows", v); }},
      {"--layers", [&](const std::string& v) { o.layers = numbers("--layers", v); }},
      {"--cells", [&](const std::string& v) { o.cells = number("--cells", v, 256); }},
      {"--trials", [&](const std::string& v) { o.trials = number("--trials", v, 1); }},
      {"--seconds", [&](const std::string& v) { o.seconds = std::strtod(v.c_str(), nullptr); }},
      {"--json", [&](const std::string& v) { line.json = v; }},
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--list") {
      line.list = true;
    } else if (word == "--help" || word == "-h") {
      line.help = true;
    } else if (word == "--plain-graphs") {
      o.plain_graphs = true;
    } else if (flags.contains(word)) {
      if (++i == arguments.size()) throw Refusal(word + " takes a value; see --help");
      flags.at(word)(arguments[i]);
    } else if (measurements().contains(word)) {
      line.what.push_back(word);
    } else {
      throw Refusal("what is " + word + "? See --help");
    }
  }
  for (const std::string& type : o.types) type_named(type);
  for (const std::string& shape : o.shapes) shape_named(shape);
  for (const std::string& attention : o.attentions) attention_named(attention);
  if (o.cells % 256 != 0) throw Refusal("--cells takes a multiple of 256, as ggml's kernels do");
  if (!line.list && !line.help && line.what.empty()) throw Refusal("nothing to measure; see --help");
  return line;
}

void measure(const CommandLine& line) {
  std::unique_ptr<std::FILE, Deleter<std::fclose>> file;
  if (!line.json.empty()) {
    file.reset(std::fopen(line.json.c_str(), "a"));
    if (!file) throw Refusal("cannot write " + line.json + "; name a file in a folder that is there");
  }
  Results results(file.get(), std::getenv("GGML_CUDA_DISABLE_GRAPHS") != nullptr);
  const Device device(line.options.device, line.options.threads);
  for (const std::string& what : line.what) {
    results.write(Record("run")
                      .set("of", what)
                      .set("device", device.name())
                      .set("description", device.description())
                      .set("ggml", ggml_version()));
    const double start = now();
    measurements().at(what)(device, line.options, results);
    results.write(Record("took").set("of", what).set("seconds", now() - start));
  }
}

}  // namespace
}  // namespace gpu

int main(int argc, char** argv) {
  try {
    const gpu::CommandLine line = gpu::parse({argv + 1, argv + argc});
    ggml_log_set(
        [](ggml_log_level level, const char* text, void*) {
          if (level == GGML_LOG_LEVEL_ERROR || level == GGML_LOG_LEVEL_WARN) std::cerr << text;
        },
        nullptr);
    if (const char* folder = std::getenv("SLUICE_GGML"); folder != nullptr) ggml_backend_load_all_from_path(folder);
    if (line.help) {
      std::cout << gpu::kHelp;
    } else if (line.list) {
      std::cout << gpu::Device::list() << "\n";
    } else {
      gpu::measure(line);
    }
  } catch (const gpu::Refusal& refusal) {
    std::cerr << "gpu_bench: " << refusal.what() << "\n";
    return 1;
  }
}
