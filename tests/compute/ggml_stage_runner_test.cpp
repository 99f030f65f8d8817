// Stages on a device of ggml's, its CPU: what our own kernels say, as far as ggml rounds alike; and what it refuses.
#include "compute/ggml_stage_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "compute/decoding.h"
#include "compute/ggml_device.h"
#include "compute/ggml_layers.h"
#include "compute/logits.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

constexpr const char* kDevice = "ggml:cpu";

double largest(const Logits& logits) {
  double most = 0.0;
  for (const auto& row : logits)
    for (const float x : row) most = std::max(most, std::fabs(static_cast<double>(x)));
  return most;
}

double largest_difference_of(const Logits& a, const Logits& b) {
  double most = 0.0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, largest_difference(a[i], b[i]));
  return most;
}

TEST(GgmlStageRunner, UnquantisedModelsOfEveryFamilyAgreeWithOurKernels) {
  std::vector<TinyModelSpec> specs;
  for (const char* architecture : {"llama", "qwen2", "qwen3"})
    for (const char* scaling : {"none", "linear", "yarn"})
      specs.push_back({.architecture = architecture,
                       .head_dim = std::string(architecture) == "qwen3" ? 24 : 16,
                       .rope_scaling = scaling});
  specs.push_back({.tied = true, .rope_scaling = "factors"});
  specs.push_back({.attention_bias = true});
  specs.push_back({.n_heads = 2, .n_kv_heads = 1, .head_dim = 32});
  // Next to nothing lies where ggml takes GELU from a table.
  for (const bool other_form : {false, true})
    specs.push_back(of_family({.n_layers = 6, .other_form = other_form, .gate_scale = 1e5f}, "gemma4"));
  specs.push_back(sharing_model({.head_dim = 20, .gate_scale = 1e5f}));
  for (const TinyModelSpec& spec : specs) {
    const ModelFile model = open_model(write_tiny_model(spec, temp_path("family.gguf")));
    const std::vector<Token> tokens = Dice(3).tokens(40, model.hparams().n_vocab);
    Pipeline ours(model, {});
    const Logits expected = text_logits(ours, tokens, 32);
    for (const int32_t lock : {kWidthLock, 16, 0}) {
      Pipeline theirs(model, {.cuts = {1, 3}, .devices = {kDevice}, .width_lock = lock});
      EXPECT_LT(largest_difference_of(text_logits(theirs, tokens, 32), expected), 1e-4 * largest(expected))
          << spec.architecture << ", rope scaling " << spec.rope_scaling << ", lock " << lock;
    }
  }
}

TEST(GgmlStageRunner, QuantisedModelsAreAboutAsOurKernelsHaveThem) {
  TinyModelSpec spec{.n_layers = 2, .d_model = 256, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .d_ff = 512};
  spec.output_scale = 2.5f;
  for (const ggml_type type :
       {GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_MXFP4}) {
    spec.type = type;
    const ModelFile model = open_model(write_tiny_model(spec, temp_path("quantised.gguf")));
    const std::vector<Token> tokens = Dice(7).tokens(32, model.hparams().n_vocab);
    Pipeline ours(model, {}), theirs(model, {.devices = {kDevice}}),
        loose(model, {.devices = {kDevice}, .width_lock = 0});
    const Logits expected = text_logits(ours, tokens, 64);
    EXPECT_LT(mean_kl(expected, text_logits(theirs, tokens, 64)), 1e-3) << ggml_type_name(type);
    EXPECT_LT(mean_kl(expected, text_logits(loose, tokens, 64)), 1e-3) << ggml_type_name(type);
  }
}

// Attention goes over 256 cells for the first 256 positions, over 512 from there on.
TEST(GgmlStageRunner, LongPromptsInChunksOfAnyWidthEqualPlainDecoding) {
  const ModelFile model = open_model(write_tiny_model({.n_layers = 2}, temp_path("long.gguf")));
  const std::vector<Token> tokens = Dice(2).tokens(300, model.hparams().n_vocab);
  for (const int32_t lock : {1, 2, 4, 5, 8, 16, 32}) {
    Pipeline pipeline(model, {.kv = KvType::kF16, .devices = {kDevice}, .width_lock = lock});
    EXPECT_EQ(pipeline.exactness(), Exactness::kWidthLocked) << lock;
    const Logits plain = text_logits(pipeline, tokens, 1);
    for (const int32_t width : {5, 16, 250}) EXPECT_EQ(text_logits(pipeline, tokens, width), plain) << lock << width;
  }
}

TEST(GgmlStageRunner, PassesAreNarrowOrWideWhereBitsAreThoseOfTheLock) {
  TinyModelSpec spec{.n_layers = 2, .d_model = 64, .d_ff = 96};
  spec.type = GGML_TYPE_Q8_0;
  const ModelFile model = open_model(write_tiny_model(spec, temp_path("narrow.gguf")));
  StageOptions options{.range = {0, 2}, .n_cells = 64, .device = kDevice, .width_lock = 16};
  const auto layers = std::move(*GgmlLayers::create(model, options, {{{0, 1}}, {{1, 2}}}));
  EXPECT_EQ(layers->widths(), std::vector<int32_t>{16});
  EXPECT_TRUE(layers->holds_still());
  // ggml takes one kernel for all widths of these.
  EXPECT_EQ(layers->widths(), (std::vector<int32_t>{1, 2, 4, 8, 16, 32}));
}

TEST(GgmlStageRunner, WithoutALockPassesAreAsWideAsTheirRowsAndBitsAreNotPromised) {
  const ModelFile model = open_model(write_tiny_model({.n_layers = 2}, temp_path("loose.gguf")));
  const std::vector<Token> tokens = Dice(2).tokens(300, model.hparams().n_vocab);
  // As many cells as tokens, no whole number of what attention goes over.
  Pipeline ours(model, {.n_cells = 301, .kv = KvType::kF16}),
      loose(model, {.n_cells = 301, .kv = KvType::kF16, .devices = {kDevice}, .width_lock = 0});
  EXPECT_EQ(loose.exactness(), Exactness::kGreedyChecked);
  const Logits expected = text_logits(ours, tokens, 32);
  for (const int32_t width : {1, 5, 16, 250})
    EXPECT_LT(largest_difference_of(text_logits(loose, tokens, width), expected), 1e-3 * largest(expected)) << width;
}

TEST(GgmlStageRunner, IsWidthLockedAndAPipelineIsAsItsWeakestStage) {
  const ModelFile model = open_model(write_tiny_model({}, temp_path("mixed.gguf")));
  const std::vector<Token> tokens = Dice(5).tokens(40, model.hparams().n_vocab);
  Pipeline ours(model, {}), mixed(model, {.cuts = {2}, .devices = {kCpuDevice, kDevice}}),
      turned(model, {.cuts = {2}, .devices = {kDevice, kCpuDevice}});
  EXPECT_EQ(ours.exactness(), Exactness::kBitwise);
  const Logits expected = text_logits(ours, tokens, 32);
  for (Pipeline* pipeline : {&mixed, &turned}) {
    EXPECT_EQ(pipeline->exactness(), Exactness::kWidthLocked);
    EXPECT_LT(largest_difference_of(text_logits(*pipeline, tokens, 32), expected), 1e-4 * largest(expected));
  }
}

// A stage, its rows and what it makes of them.
struct Made {
  std::vector<float> hidden, logits, taps;
  uint64_t beyond = 0;
};

Made make(const ModelFile& model, StageOptions options, const std::string& device, int32_t lock = kWidthLock) {
  options.device = device;
  options.width_lock = lock;
  options.n_cells = 40;
  options.kv = KvType::kF32;
  const auto runner = std::move(*make_stage_runner(model, options));
  std::vector<Row> rows;
  for (int32_t i = 0; i < 20; ++i) rows.push_back(make_row(0, 3 * i, i, i, i - 1, Row::Kind::kPrompt));
  const PathUpdate open = Open{SequenceId(0), {}};
  runner->enter({&open, 1}, rows);
  const auto d = static_cast<size_t>(model.hparams().d_model);
  Made made{.hidden = Dice(4).normals(rows.size() * d)};
  runner->run(rows, made.hidden);
  for (size_t t = 0; t < options.taps.size(); ++t)
    made.taps.insert(made.taps.end(), runner->tap(t).begin(), runner->tap(t).end());
  made.beyond = runner->take_out_of_range();
  if (!options.with_head) return made;
  made.logits.resize(rows.size() * static_cast<size_t>(options.n_logits));
  runner->logits(made.hidden, made.logits);
  return made;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  double most = 0.0, size = 1.0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(a[i]) - b[i]));
    size = std::max(size, std::fabs(static_cast<double>(a[i])));
  }
  EXPECT_LT(most, tolerance * size);
}

TEST(GgmlStageRunner, TapsRoundedStatesAndFewLogitsAreThoseOfOurKernels) {
  const ModelFile plain = open_model(write_tiny_model({.n_layers = 4}, temp_path("taps.gguf")));
  // Tokens give each of its layers something, and the last ones read keys and values of layers 4 and 5.
  const ModelFile sharing =
      open_model(write_tiny_model(sharing_model({.gate_scale = 1e5f}), temp_path("sharing.gguf")));
  const StageOptions cases[] = {
      {.range = {0, 4}, .n_logits = 50, .taps = {0, 1, 4}},
      {.range = {1, 4}, .with_embedding = false, .with_head = false, .taps = {2, 3}},
      {.range = {0, 4}, .n_logits = 7, .rounded = {1, 3}},
      {.range = {0, 0}, .with_head = false, .taps = {0}},
      {.range = {4, 4}, .with_embedding = false, .n_logits = 300},
      {.range = {0, 2}, .with_head = false, .foreign_tokens = true},
  };
  const StageOptions cases_of_sharing[] = {
      {.range = {0, 9}, .n_logits = 50, .taps = {0, 5, 7, 8}},
      {.range = {4, 9}, .with_embedding = false, .with_head = false, .taps = {5, 6}},
      {.range = {0, 9}, .n_logits = 7, .rounded = {2, 4}},
      {.range = {9, 9}, .with_embedding = false, .n_logits = 300},
  };
  std::vector<std::pair<const ModelFile*, StageOptions>> all;
  for (const StageOptions& options : cases) all.emplace_back(&plain, options);
  for (const StageOptions& options : cases_of_sharing) all.emplace_back(&sharing, options);
  for (const auto& [file, options] : all) {
    SCOPED_TRACE(options.range.first * 10 + options.range.last);
    const ModelFile& model = *file;
    const Made ours = make(model, options, kCpuDevice);
    for (const int32_t lock : {kWidthLock, 16, 0}) {
      const Made theirs = make(model, options, kDevice, lock);
      const double tolerance = options.rounded.empty() ? 1e-5 : 2e-3;  // f16's last bit
      expect_near(theirs.hidden, ours.hidden, tolerance);
      expect_near(theirs.taps, ours.taps, tolerance);
      expect_near(theirs.logits, ours.logits, tolerance);
      EXPECT_EQ(theirs.beyond, ours.beyond);
    }
  }
}

TEST(GgmlStageRunner, NamesOfDevicesAreTakenInAnyCaseAndAnUnknownOneNamesThoseThatAreThere) {
  const auto devices = ggml_devices();
  const auto found = std::ranges::find(devices, kDevice, &GgmlDeviceText::name);
  ASSERT_NE(found, devices.end());
  EXPECT_FALSE(found->description.empty());
  EXPECT_TRUE(GgmlDevice::open("GGML:Cpu", 1));
  const ModelFile model = open_model(write_tiny_model({}, temp_path("device.gguf")));
  for (const char* unknown : {"ggml:cuda7", "gpu", ""}) {
    const auto made = make_stage_runner(model, {.range = {0, 1}, .n_cells = 4, .device = unknown});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().kind, ErrorKind::kInput);
    for (const std::string& word : {"'" + std::string(unknown) + "'", std::string("cpu, ggml:cpu")})
      EXPECT_NE(made.error().message.find(word), std::string::npos) << made.error().message;
  }
}

// As its CUDA backend does when the driver reports an error.
TEST(GgmlStageRunner, WhereGgmlWouldEndTheProgramOnADeviceTheErrorIsThrown) {
  const auto said = [](const std::function<void()>& work) -> std::string {
    try {
      guard_ggml("ggml:cuda0", work);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(said([] {}), "");
  const std::string error = said([] { ggml_abort("cuda.cu", 7, "%s", "CUDA error"); });
  for (const char* word : {"ggml:cuda0 failed", "CUDA error", "--device"})
    EXPECT_NE(error.find(word), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_EXIT(ggml_abort("cpu.c", 7, "nothing left"), testing::ExitedWithCode(1), "sluice: ggml can't go on: .*left");
}

#ifndef __SANITIZE_ADDRESS__  // which ends the program where there is no more memory
TEST(GgmlStageRunner, TooLittleMemoryIsALineThatSaysWhatToDo) {
  const GgmlDevice device = std::move(*GgmlDevice::open(kDevice, 1));
  const GgmlContextPtr tensors(ggml_init({ggml_tensor_overhead(), nullptr, true}));
  ggml_new_tensor_1d(tensors.get(), GGML_TYPE_F32, int64_t{1} << 56);
  const auto room = device.allocate(tensors.get(), "layers 0 to 8 with 1000 cells");
  ASSERT_FALSE(room);
  EXPECT_EQ(room.error().kind, ErrorKind::kRuntime);
  for (const char* word : {kDevice, "too little memory", "layers 0 to 8", "--context"})
    EXPECT_NE(room.error().message.find(word), std::string::npos) << room.error().message;
}
#endif

TEST(GgmlStageRunner, CellsThatAttentionGoesOverDependOnThePositionAlone) {
  EXPECT_EQ(ggml_attended_cells(1), 256);
  EXPECT_EQ(ggml_attended_cells(256), 256);
  EXPECT_EQ(ggml_attended_cells(257), 512);
  EXPECT_EQ(ggml_attended_cells(1025), 2048);
  EXPECT_EQ(ggml_attended_cells(2049), 4096);
  EXPECT_EQ(ggml_attended_cells(8448), 10240);
}

TEST(GgmlStageRunner, WidthsOfPassesAreFewAndLargeEnough) {
  std::set<int32_t> widths;
  for (int32_t n = 1; n <= 512; ++n) {
    const int32_t width = ggml_pass_rows(n);
    EXPECT_GE(width, n);
    EXPECT_LT(width, 2 * n);
    widths.insert(width);
  }
  EXPECT_LT(widths.size(), 32u);
}

}  // namespace
}  // namespace sluice::test
