#include "session/cuts.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/half.h"
#include "compute/ggml_device.h"
#include "pipeline/cost_model.h"
#include "pipeline/stage_memory.h"
#include "session/memory_need.h"

namespace sluice {

namespace {

constexpr double kGib = 1 << 30;

// Whether stages fit into the memory that their hosts are to give, or that is free on their devices. Without such
// limits: whatever fits.
class StageRoom {
 public:
  StageRoom(const ModelFile& model, const SessionOptions& options, size_t n_stages, const FreeMemory& free)
      : model_(model), options_(options) {
    for (size_t stage = 0; stage < n_stages; ++stage)
      limits_.push_back(options.hosts.empty() ? of_device(stage, n_stages, free) : of_host(stage));
    if (!limited()) return;
    const int32_t n = model.hparams().n_layers;
    embedding_ = bytes({0, 0}, true, false);
    head_ = bytes({n, n}, false, true);
    const int64_t besides = embeds_everywhere() ? embedding_ : 0;  // what one layer alone would have, too
    for (int32_t l = 0; l < n; ++l) up_to_.push_back(up_to_.back() + bytes({l, l + 1}, false, false) - besides);
  }
  bool limited() const {
    return std::ranges::any_of(limits_, [](double limit) { return limit > 0; });
  }
  Fits fits() const {
    if (!limited() && model_.hparams().n_sharing_layers == 0) return {};
    return [this](StageId stage, LayerRange range) {
      if (model_.hparams().parted_by(range.first) >= 0) return false;
      const double limit = limits_[static_cast<size_t>(stage.value)];
      return limit == 0 || static_cast<double>(bytes_of(range)) <= limit;
    };
  }
  tl::unexpected<Error> too_little() const {
    const std::string all = gib(static_cast<double>(bytes_of({0, model_.hparams().n_layers}))) + " in all";
    if (!options_.hosts.empty())
      return input_error("--hosts: the memory that its hosts may give is too little for their parts of " +
                         model_.hparams().name + ", " + all +
                         ": raise memory, name more hosts, or give a smaller --context");
    std::string devices, with_cpu;
    for (size_t stage = 0; stage < limits_.size(); ++stage) {
      const std::string& name = options_.device(stage);
      devices += (stage > 0 ? ", " : "") + name + (limits_[stage] > 0 ? " " + gib(limits_[stage]) : "");
      with_cpu += name + ",";
    }
    return input_error("--device: the memory that is free there is too little for the stages of " +
                       model_.hparams().name + ", " + all + " (" + devices + "): add a stage on the CPU (--device " +
                       with_cpu + "cpu), or give a smaller --context");
  }

 private:
  // Of what is free on a device and passes do not need.
  static constexpr double kTaken = 0.95;

  // 0: there is none.
  double of_device(size_t stage, size_t n_stages, const FreeMemory& free) const {
    const std::string& name = options_.device(stage);
    if (name == kCpuDevice) return 0;
    size_t there = 0;
    for (size_t other = 0; other < n_stages; ++other) there += options_.device(other) == name ? 1 : 0;
    const auto all = static_cast<double>(free(name));
    if (all == 0) return 0;
    const auto passes = static_cast<double>(bytes_of_passes(model_.hparams()));
    return std::max(1.0, kTaken * (all / static_cast<double>(there) - passes));
  }
  // Its share, where several stages are there.
  double of_host(size_t stage) const {
    double memory = 0;
    int there = 0;
    for (const HostOptions& other : options_.hosts) {
      if (other.address.text() != options_.hosts[stage].address.text()) continue;
      memory = std::max(memory, other.memory);
      ++there;
    }
    return memory * kGib / there;
  }
  static std::string gib(double bytes) {
    const auto tenths = std::lround(bytes / kGib * 10);
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
  }
  int64_t bytes(LayerRange range, bool with_embedding, bool with_head) const {
    const auto cells = cells_of_request(options_.context, options_.stages, options_.request.method_options);
    const auto limited = std::ranges::find_if(limits_, [](double limit) { return limit > 0; });
    return bytes_of_stage({.options = {.range = range,
                                       .with_embedding = with_embedding,
                                       .with_head = with_head,
                                       .kv = options_.kv,
                                       .n_cells = static_cast<int32_t>(cells),
                                       .device = options_.device(static_cast<size_t>(limited - limits_.begin()))}},
                          model_);
  }
  int64_t bytes_of(LayerRange range) const {
    // A device's stage has no embedding: that stays in the file.
    const bool embeds = !options_.hosts.empty() && (range.first == 0 || embeds_everywhere());
    const bool last = range.last == model_.hparams().n_layers;
    return up_to_[static_cast<size_t>(range.last)] - up_to_[static_cast<size_t>(range.first)] +
           (embeds ? embedding_ : 0) + (last && !(embeds && model_.tied_head()) ? head_ : 0);
  }
  // With embeddings for each layer every stage reads the first one, too.
  bool embeds_everywhere() const { return model_.hparams().d_per_layer > 0; }

  const ModelFile& model_;
  const SessionOptions& options_;
  std::vector<double> limits_;        // [stages] bytes; 0: none
  std::vector<int64_t> up_to_ = {0};  // bytes of all layers before
  int64_t embedding_ = 0, head_ = 0;
};

// Where processors and GPUs share a model: a GPU reads its memory some ten times as fast.
std::vector<double> speeds_of_devices(const SessionOptions& options, size_t n_stages) {
  constexpr double kGpu = 10.0;
  std::vector<double> speeds;
  for (size_t stage = 0; stage < n_stages; ++stage) {
    const std::string& name = options.device(stage);
    speeds.push_back(name == kCpuDevice || name == kGgmlPrefix + std::string(kCpuDevice) ? 1.0 : kGpu);
  }
  return speeds;
}

// As a file of hosts says how many layers each takes.
Result<std::vector<LayerRange>> cuts_of_hosts(const std::vector<HostOptions>& hosts, int32_t n_layers) {
  std::vector<LayerRange> cuts;
  int32_t first = 0;
  for (const HostOptions& host : hosts) {
    cuts.push_back({first, first + host.layers});
    first += host.layers;
  }
  if (first == n_layers) return cuts;
  return input_error("--hosts: its hosts take " + std::to_string(first) + " layers, and the model has " +
                     std::to_string(n_layers) + ": change their layers, or leave them out");
}

// As they are, if no layer has to read keys and values of one in another stage. option: what gave them.
Result<std::vector<LayerRange>> whole(std::vector<LayerRange> cuts, const HyperParameters& h, const char* option) {
  for (const LayerRange& stage : cuts)
    if (const int32_t layer = h.parted_by(stage.first); layer >= 0)
      return input_error(std::string(option) + ": no stage may begin with layer " + std::to_string(stage.first) +
                         ", since layer " + std::to_string(layer) + " reads keys and values of layer " +
                         std::to_string(h.kv_layer_of(layer)));
  return cuts;
}

}  // namespace

int64_t free_memory_of(const std::string& device) {
  const auto devices = ggml_devices();
  const auto at = std::ranges::find(devices, device, &GgmlDeviceText::name);
  return at == devices.end() ? 0 : at->memory_free;
}

int64_t bytes_of_passes(const HyperParameters& h) {
  constexpr int64_t kRows = 128, kCells = 256, kPaths = int64_t{1} << 28, kOfKernels = int64_t{1} << 26;
  int64_t values = 0;  // of a cell in a layer
  for (int32_t layer = 0; layer < h.n_layers; ++layer) values = std::max(values, h.values_of_cell(layer));
  const int64_t paths = std::min(kPaths, kRows * kCells * values * static_cast<int64_t>(sizeof(Half)));
  const int64_t widths = 3 * std::max(h.d_ff, h.mixture.n_used * h.mixture.d_ff) + 8 * h.d_model;
  return 3 * paths / 2 + kRows * widths * static_cast<int64_t>(sizeof(float)) + kOfKernels;
}

int32_t most_stages(const HyperParameters& h) {
  int32_t n = 0;
  for (int32_t layer = 0; layer < h.n_layers; ++layer) n += h.parted_by(layer) < 0 ? 1 : 0;
  return n;
}

Result<std::vector<LayerRange>> choose_cuts(const ModelFile& model, const SessionOptions& options,
                                            const std::optional<Profile>& profile, const FreeMemory& free) {
  const HyperParameters& h = model.hparams();
  const int32_t n_layers = h.n_layers;
  const size_t n_stages = options.n_stages();
  if (profile) SLUICE_TRY_STATUS(profile->check_stages(n_stages));
  if (options.hosts_say_layers()) {
    SLUICE_TRY(auto cuts, cuts_of_hosts(options.hosts, n_layers));
    return whole(std::move(cuts), h, "--hosts");
  }
  if (!options.cuts.empty()) {
    SLUICE_TRY(auto cuts, explicit_cuts(options.cuts, n_layers));
    return whole(std::move(cuts), h, "--cuts");
  }
  if (options.stages > n_layers)
    return input_error("--stages " + std::to_string(options.stages) + ": the model has only " +
                       std::to_string(n_layers) + " layers; give --stages " + std::to_string(n_layers) + " at most");
  if (options.stages > most_stages(h))
    return input_error("--stages " + std::to_string(options.stages) +
                       ": layers of this model that read each other's keys and values stay together; give --stages " +
                       std::to_string(most_stages(h)) + " at most");
  // At width 1 a stage reads its weights once: bytes are time. The embedding reads one row.
  std::vector<double> layers(static_cast<size_t>(n_layers));
  for (int32_t l = 0; l < n_layers; ++l) layers[static_cast<size_t>(l)] = static_cast<double>(model.layer_bytes(l));
  double embedding = 0, head = static_cast<double>(model.head_bytes());
  if (profile && profile->per_layer()) {
    std::fill(layers.begin(), layers.end(), profile->layer.at(1));
    embedding = profile->embedding.at(1);
    head = profile->head.at(1);
  }
  const std::vector<double> speeds = profile                 ? profile->speeds
                                     : options.hosts.empty() ? speeds_of_devices(options, n_stages)
                                                             : std::vector<double>();
  const StageRoom room(model, options, n_stages, free);
  auto cuts = balanced_cuts(layers, embedding, head, options.stages, room.fits(), speeds);
  if (cuts.empty()) return room.too_little();
  return cuts;
}

}  // namespace sluice
