// What training P-EAGLE costs by the length of a sequence: memory, time, and its masks built once or for each example.
// Made-up states; the default shapes of a target. One JSON object a run.
//
//   sluice_p_eagle_costs -m model.gguf --length 2048 --segments 4
#include "train/p_eagle.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/random.h"
#include "train/draft_vocabulary.h"

namespace sluice {
namespace {

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A line of /proc/self/status, in MiB.
double memory(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return std::stod(line.substr(key.size() + 1)) / 1024;
  return 0;
}

nlohmann::json masks(int64_t length, int64_t groups) {
  std::vector<CodRow> rows;
  const auto kept = sample_cod(0, length, groups, 0.8, 1);
  for (size_t d = 0; d < kept.size(); ++d)
    for (const int64_t p : kept[d]) rows.push_back({p, static_cast<int64_t>(d)});
  nlohmann::json j = {{"rows", rows.size()}, {"built_each_seconds", seconds([&] { sees(rows, rows); })}};
  j["built_entry_by_entry_seconds"] = seconds([&] {
    std::vector<char> seen(rows.size() * rows.size());
    for (size_t i = 0; i < rows.size(); ++i)
      for (size_t k = 0; k < rows.size(); ++k) seen[i * rows.size() + k] = sees(rows[i], rows[k]);
  });
  if (length * groups > 8192) return j;
  std::optional<AmortisedMask> mask;
  j["built_once_seconds"] = seconds([&] { mask.emplace(length, groups); });
  j["selected_seconds"] = seconds([&] { mask->select(rows, rows); });
  return j;
}

Status run(const std::string& path, int32_t length, PEagleOptions options) {
  SLUICE_TRY(const auto model, ModelFile::open(path));
  SLUICE_TRY(const auto target, TargetTensors::open(model));
  const HyperParameters& h = model.hparams();
  nlohmann::json j = {{"length", length},
                      {"segments", options.segments},
                      {"layers", options.layers},
                      {"masks", masks(length, options.groups)}};
  Example example{.n_prompt = 8, .tokens = std::vector<Token>(static_cast<size_t>(length))};
  PEagle head(h, target, std::move(options), choose_draft_vocabulary({example}, h.n_vocab, 4096));
  Captured captured{.example = &example, .layers = head.taps()};
  std::sort(captured.layers.begin(), captured.layers.end());
  captured.layers.erase(std::unique(captured.layers.begin(), captured.layers.end()), captured.layers.end());
  for (size_t l = 0; l < captured.layers.size(); ++l) {
    auto& states = captured.states.emplace_back(static_cast<size_t>(length) * static_cast<size_t>(h.d_model));
    for (size_t i = 0; i < states.size(); i += 4) {
      const auto u = uniform4({.seed = l, .purpose = Purpose::kTest}, static_cast<uint32_t>(i));
      for (size_t k = 0; k < 4 && i + k < states.size(); ++k) states[i + k] = static_cast<float>(u[k] - 0.5);
    }
  }
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
  const double before = memory("VmRSS");
  j["seconds"] = seconds([&] { head.accumulate(captured, 1, 1.0); });
  j["peak_mib"] = memory("VmHWM") - before;
  std::cout << j.dump() << std::endl;
  return {};
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  CLI::App app("What training P-EAGLE costs by the length of a sequence");
  std::string model;
  int32_t length = 512;
  sluice::PEagleOptions options;
  app.add_option("-m,--model", model)->required();
  app.add_option("--length", length);
  app.add_option("--segments", options.segments);
  app.add_option("--layers", options.layers);
  app.add_option("--groups", options.groups);
  CLI11_PARSE(app, argc, argv);
  const auto status = sluice::run(model, length, options);
  if (!status) std::cerr << status.error().message << std::endl;
  return status ? 0 : 1;
}
