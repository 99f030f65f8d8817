#include "plan/measure.h"

#include <algorithm>
#include <chrono>

#include "base/file.h"

namespace sluice {

namespace {

// The median time of a few runs of `work`.
template <class Work>
double median_seconds(int32_t runs, const Work& work) {
  std::vector<double> seconds;
  for (int32_t i = 0; i < runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
  return seconds[static_cast<size_t>(runs / 2)];
}

}  // namespace

std::string local_profile_path() { return cache_folder() + "/local.json"; }

void mend(CostCurve& measured) {
  for (size_t i = measured.points.size(); i-- > 1;)
    measured.points[i - 1].seconds = std::min(measured.points[i - 1].seconds, measured.points[i].seconds);
}

CostCurve draft_pass(const Profile& measured, int32_t n_layers) {
  CostCurve pass;
  for (const CostCurve::Point& layer : measured.layer.points)
    pass.points.push_back({layer.rows, n_layers * layer.seconds + measured.head.at(layer.rows)});
  return pass;
}

Result<Profile> measure_profile(const ModelFile& model, const StageOptions& with,
                                const std::function<bool(double)>& progress) {
  constexpr int32_t kWidths[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  constexpr int32_t kPrefix = 256;  // tokens that the timed rows attend to
  const HyperParameters& h = model.hparams();
  const size_t d = static_cast<size_t>(h.d_model), v = static_cast<size_t>(model.n_logits());
  SLUICE_TRY(const auto runner, make_stage_runner(model, {.range = {0, h.n_layers},
                                                          .kv = with.kv,
                                                          .n_cells = kPrefix + 256,
                                                          .max_rows = 256,
                                                          .threads = with.threads,
                                                          .taps = {},
                                                          .device = with.device,
                                                          .width_lock = with.width_lock}));
  Profile profile;
  profile.name = "local";
  profile.description = h.name + " on this machine, " + std::to_string(with.threads) + " threads a stage";
  if (with.device != kCpuDevice) profile.description += ", on " + with.device;
  profile.source = "measured";

  const SequenceId sequence(0);
  const auto rows_from = [&](int32_t first, int32_t count) {
    std::vector<Row> rows;
    for (int32_t i = first; i < first + count; ++i)
      rows.push_back({.sequence = sequence,
                      .token = i % h.n_vocab,
                      .position = i,
                      .cell = Cell(i),
                      .parent = Cell(i - 1),
                      .kind = i < kPrefix ? Row::Kind::kPrompt : Row::Kind::kNode});
    return rows;
  };
  std::vector<float> hidden(256 * d), logits;
  const auto prefix = rows_from(0, kPrefix);
  const PathUpdate open = Open{sequence, {}};
  runner->enter({&open, 1}, prefix);
  runner->run(prefix, std::span(hidden).first(kPrefix * d));
  double done = 0;
  for (const int32_t width : kWidths) {
    const auto rows = rows_from(kPrefix, width);
    runner->enter({}, rows);
    const int32_t runs = std::max(3, 48 / width);
    const auto states = std::span(hidden).first(static_cast<size_t>(width) * d);
    const double pass = median_seconds(runs, [&] { runner->run(rows, states); });
    profile.layer.points.push_back({static_cast<double>(width), pass / h.n_layers});
    if (width <= 16) {  // of one level at most one row of a request needs the head
      logits.resize(static_cast<size_t>(width) * v);
      profile.head.points.push_back(
          {static_cast<double>(width), median_seconds(runs, [&] { runner->logits(states, logits); })});
    }
    if (!progress(++done / std::size(kWidths))) break;
  }
  mend(profile.layer);
  mend(profile.head);
  profile.link = {.latency = 5e-6, .bandwidth = 5e9};  // a queue between threads of one process
  return profile;
}

}  // namespace sluice
