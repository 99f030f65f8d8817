// What decoding costs behind a long prompt, at equal acceptance: guesses come from a text that holds the answer, so
// that nearly all are right, whatever the context.
//
//   long_context -m TARGET --text FILE [--prompts 1024,16384] [--stages 2] [--methods ar,specpipe,surge] [--tokens 96]
//
// For each length of prompt: the target answers by plain decoding; then, in an engine whose n-grams know that answer,
// all methods answer in turn, each going on from the cells of one prompt. Prints a Markdown table of tokens a second
// from the first token to the last (medians of the rounds), tokens a verification, and the coordinator's own time.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include "session/assemble.h"
#include "support/harness.h"

namespace {

using namespace sluice;
using namespace sluice::test;

struct Setting {
  int32_t stages = 2, threads = 1, tokens = 96, width = 4, rounds = 3;
  std::vector<std::string> methods = {"ar", "specpipe", "surge"};
};

struct Rate {
  std::vector<double> tokens_a_second;
  double tokens_a_batch = 0;  // that brought any
  double coordinator = 0;     // seconds a batch
};

template <class T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

std::unique_ptr<Engine> engine_for(const Opened& opened, const Setting& setting, size_t prompt,
                                   std::shared_ptr<const KnownText> corpus) {
  const int32_t context = static_cast<int32_t>(prompt) + setting.tokens + 8;
  Assembly assembly = value_of(assemble({.options = {.threads = setting.threads},
                                         .model = &opened.model,
                                         .tokenizer = &opened.tokenizer,
                                         .cuts = cuts_of(opened, {.stages = setting.stages}),
                                         .engine = {.context = context,
                                                    .n_cells = context + 4 * (setting.tokens + kMostRows),
                                                    .corpus = std::move(corpus),
                                                    .scheduler = {.prompt_chunk = 64, .longest_chunk = 256}}}));
  return std::make_unique<Engine>(opened.tokenizer, std::move(assembly.executor), std::move(assembly.engine));
}

RequestSpec spec_of(const std::vector<Token>& prompt, const std::string& method, const Setting& setting) {
  RequestSpec spec{.prompt = prompt, .max_tokens = setting.tokens, .method = method, .ignore_end = true};
  spec.method_options.width = setting.width;
  return spec;
}

// The prompt is there before the clock is looked at.
Rate& answer(Engine& engine, const RequestSpec& spec, Rate& rate, std::vector<Token>& said) {
  const RequestId id = submit(engine, spec);
  const double before = engine.coordinator_seconds();
  const int64_t batches = engine.batches();
  finish(engine);
  const Request& request = engine.request(id);
  said = test::answer(engine, id);
  rate.tokens_a_second.push_back(static_cast<double>(said.size() - 1) /
                                 (request.stats.last_token - request.stats.first_token));
  rate.tokens_a_batch = static_cast<double>(said.size()) / static_cast<double>(request.stats.verifications);
  rate.coordinator = (engine.coordinator_seconds() - before) / static_cast<double>(engine.batches() - batches);
  if (spec.shares) engine.release(id);
  return rate;
}

std::map<std::string, Rate> rates(const Opened& opened, const Setting& setting, const std::vector<Token>& prompt) {
  Rate first;
  std::vector<Token> truth, said;
  answer(*engine_for(opened, setting, prompt.size(), nullptr), spec_of(prompt, "ar", setting), first, truth);
  std::vector<Token> known(prompt.end() - std::min<ptrdiff_t>(16, std::ssize(prompt)), prompt.end());
  known.insert(known.end(), truth.begin(), truth.end());
  const auto engine = engine_for(opened, setting, prompt.size(), std::make_shared<KnownText>(std::move(known)));
  RequestSpec only_prompt = spec_of(prompt, "ar", setting);
  only_prompt.max_tokens = 1;
  const RequestId there = submit(*engine, only_prompt);
  finish(*engine);
  std::map<std::string, Rate> rates;
  for (int32_t round = 0; round < setting.rounds; ++round)
    for (const std::string& method : setting.methods) {
      RequestSpec spec = spec_of(prompt, method, setting);
      spec.shares = there;
      answer(*engine, spec, rates[method], said);
      if (said != truth) throw std::runtime_error(method + " said something else than plain decoding");
    }
  return rates;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

int run(const std::string& model, const std::string& text, const std::vector<size_t>& prompts, const Setting& setting) {
  const Opened opened = test::open(model);
  std::ifstream file(text, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::vector<Token> tokens = value_of(opened.tokenizer.encode(bytes, true, false));
  std::printf(
      "| prompt | method | tok/s | times ar | tokens a batch | coordinator, us a batch |\n|---|---|---|---|---|---|\n");
  for (const size_t length : prompts) {
    if (tokens.size() < length)
      throw std::runtime_error(text + " has " + std::to_string(tokens.size()) + " tokens: give a longer one");
    const auto all = rates(opened, setting, {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(length)});
    for (const std::string& method : setting.methods) {
      const Rate& rate = all.at(method);
      const double per_second = median(rate.tokens_a_second);
      std::printf("| %zu | %s | %.2f | %.2f | %.2f | %.1f |\n", length, method.c_str(), per_second,
                  per_second / median(all.at(setting.methods.front()).tokens_a_second), rate.tokens_a_batch,
                  1e6 * rate.coordinator);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What decoding costs behind a long prompt");
  Setting setting;
  std::string model, text;
  std::vector<size_t> prompts = {1024, 16384};
  app.add_option("-m,--model", model, "Target, a GGUF file")->required();
  app.add_option("--text", text, "File whose beginning is the prompt")->required();
  app.add_option("--prompts", prompts, "Their tokens")->delimiter(',')->capture_default_str();
  app.add_option("--stages", setting.stages, "Pipeline stages")->capture_default_str();
  app.add_option("--threads", setting.threads, "Of each stage")->capture_default_str();
  app.add_option("--methods", setting.methods, "How to decode; the first one is what others are compared with")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--tokens", setting.tokens, "Of each answer")->capture_default_str();
  app.add_option("--width", setting.width, "Nodes a level")->capture_default_str();
  app.add_option("--rounds", setting.rounds, "Answers of each method")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return run(model, text, prompts, setting);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "long_context: %s\n", error.what());
    return 1;
  }
}
