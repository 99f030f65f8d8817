// What the coordinator costs by stages, requests and context: a model of 256 narrow layers on the simulated clock.
//
//   scaling [--method NAME] [--stages 8,32,…] [--requests 1,4,…] [--prompt N] [--tokens N] [--width W]
//
// Prints a Markdown table: processor time of the coordinator a batch and a row of it while all requests answer, and
// what it has to keep in view.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "support/harness.h"
#include "support/spy.h"

namespace {

using namespace sluice;
using namespace sluice::test;

struct Load {
  std::string method = "specpipe";
  int32_t stages = 8, requests = 1;
  int32_t prompt = 24, tokens = 96;  // of each request
  int32_t width = 16;
};

struct Costs {
  double seconds = 0;  // of the coordinator
  int64_t batches = 0, rows = 0, tokens = 0;
  size_t most_nodes = 0;  // of all trees together
};

const Opened& many_layers() {
  TinyModelSpec spec = narrow_model(256);
  spec.context_length = 32768;
  spec.weight_scale = 0.2f;
  return open_tiny("many_layers", spec);
}

RequestSpec request_of(const Load& load, int32_t number) {
  RequestSpec spec{.prompt = {}, .sampling = {}, .max_tokens = load.tokens, .method = load.method, .ignore_end = true};
  for (int32_t t = 0; t < load.prompt; ++t) spec.prompt.push_back(97 + (t * (number + 3)) % 7);
  spec.method_options.width = load.width;
  return spec;
}

Costs run(const Load& load) {
  Costs costs;
  PipelineSpec setup{.stages = load.stages, .lazy = true, .context = load.prompt + load.tokens + 8};
  setup.n_cells = load.requests * (setup.context + std::max(load.width * (load.stages + 2), kMostRows));
  const auto engine = make_engine(many_layers(), setup, [&](std::unique_ptr<Executor> executor) {
    auto spy = std::make_unique<Spy>(std::move(executor));
    spy->on_submit = [&](ModelId, const Batch& batch) { costs.rows += static_cast<int64_t>(batch.rows.size()); };
    return spy;
  });
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < load.requests; ++i) ids.push_back(submit(*engine, request_of(load, i)));
  const auto answered = [&](RequestId id) { return static_cast<int64_t>(engine->request(id).n_answer()); };
  const auto step = [&] {
    if (const auto stepped = engine->step(); !stepped) throw std::runtime_error(stepped.error().message);
  };
  while (!std::ranges::all_of(ids, [&](RequestId id) { return answered(id) > 0; })) step();
  const Costs before{engine->coordinator_seconds(), engine->batches(), costs.rows};
  for (const RequestId id : ids) costs.tokens -= answered(id);
  while (std::ranges::all_of(ids, [&](RequestId id) { return engine->request(id).finish == Finish::kNone; })) {
    step();
    size_t nodes = 0;
    for (const RequestId id : ids) nodes += engine->request(id).speculation.tree.size();
    costs.most_nodes = std::max(costs.most_nodes, nodes);
  }
  for (const RequestId id : ids) costs.tokens += answered(id);
  costs.seconds = engine->coordinator_seconds() - before.seconds;
  costs.batches = engine->batches() - before.batches;
  costs.rows -= before.rows;
  return costs;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What the coordinator costs by stages, requests and context");
  Load load;
  std::vector<int32_t> stages = {8, 32, 128, 256}, requests = {1, 4, 16, 64};
  app.add_option("--method", load.method, "How to decode")->capture_default_str();
  app.add_option("--stages", stages, "Pipeline stages")->delimiter(',')->capture_default_str();
  app.add_option("--requests", requests, "Requests in flight")->delimiter(',')->capture_default_str();
  app.add_option("--prompt", load.prompt, "Tokens of each prompt")->capture_default_str();
  app.add_option("--tokens", load.tokens, "Tokens of each answer")->capture_default_str();
  app.add_option("--width", load.width, "Nodes a level")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::printf("| stages | requests | rows a batch | us a batch | us a row | nodes in view | rows a token |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (const int32_t n : stages)
    for (const int32_t r : requests) {
      load.stages = n, load.requests = r;
      const Costs c = run(load);
      const auto batches = static_cast<double>(c.batches), rows = static_cast<double>(c.rows);
      std::printf("| %d | %d | %.1f | %.1f | %.2f | %zu | %.1f |\n", n, r, rows / batches, 1e6 * c.seconds / batches,
                  1e6 * c.seconds / rows, c.most_nodes, rows / static_cast<double>(c.tokens));
      std::fflush(stdout);
    }
  return 0;
}
