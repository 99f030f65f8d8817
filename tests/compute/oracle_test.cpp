// The same file, the same tokens: a StageRunner against libllama.
#include "compute/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>

#include "compute/decoding.h"
#include "compute/passage.h"
#include "model/family.h"
#include "model/tokenizer.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

// Stages of ours, and through ggml.
constexpr const char* kDevices[] = {kCpuDevice, "ggml:cpu"};

// What libllama says about a text, and what it would say if it did not round activations.
struct Reference {
  Logits logits;               // in batches of one token
  std::vector<double> spread;  // [token] the largest difference of a logit between the widths 1, 4, 76 and 256
  Logits unrounded;            // of the same weights as f32
};

Reference reference(const std::string& path, const std::vector<Token>& tokens) {
  const std::string f32_path = temp_path("f32.gguf");
  write_as_f32(path, f32_path);
  const auto context = static_cast<int32_t>(tokens.size());
  Oracle oracle(path, context), f32_oracle(f32_path, context);
  const auto start = [&](Oracle& o, int32_t width) {
    return std::async(std::launch::async, [&o, &tokens, width] { return o.logits(tokens, width); });
  };
  auto unrounded = start(f32_oracle, 64), narrow = start(oracle, 1);
  std::vector<std::future<Logits>> wider;
  for (const int32_t width : {4, 76, 256}) wider.push_back(start(oracle, width));
  Reference result{narrow.get(), std::vector<double>(tokens.size()), unrounded.get()};
  for (auto& run : wider) {
    const Logits wide = run.get();
    for (size_t i = 0; i < tokens.size(); ++i) {
      result.spread[i] = std::max(result.spread[i], largest_difference(result.logits[i], wide[i]));
    }
  }
  return result;
}

// The best token is libllama's wherever its lead, with rounding and without, is larger than its own spread there and
// than 4 RMS differences.
void expect_the_best_tokens_of(const Reference& libllama, const Logits& ours) {
  size_t decided = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto& theirs = libllama.logits[i];
    const double lead = std::min(margin(theirs), margin(libllama.unrounded[i]));
    if (lead <= std::max(libllama.spread[i], 4 * rms_difference(theirs, ours[i]))) continue;
    ++decided;
    EXPECT_EQ(argmax(theirs), argmax(ours[i])) << "position " << i << ", margin " << margin(theirs);
  }
  EXPECT_GT(decided, ours.size() / 4) << "the comparison says little";
}

// Our error over libllama's, both against activations that are not rounded. However either of the two rounds them, ours
// must not be the worse result.
double error_ratio(const Reference& libllama, const Logits& ours) {
  return rms_difference(libllama.unrounded, ours) / rms_difference(libllama.unrounded, libllama.logits);
}

std::vector<Token> english_text(const ModelFile& model, size_t n) {
  auto tokens = Tokenizer::load(model).value().encode(kPassage, false, false).value();
  EXPECT_GE(tokens.size(), n);
  tokens.resize(n);
  return tokens;
}

struct FamilyCase {
  const char* name;
  TinyModelSpec spec;
  double bound = 1e-4;  // on the difference of a logit
};

// As the dense ones are, those with embeddings for each layer, and mixtures.
std::vector<TinyModelSpec> gemma4_models() {
  const TinyModelSpec dense{.architecture = "gemma4", .n_layers = 6, .head_dim = 24, .tied = true, .rope_base = 1e6f};
  const TinyModelSpec mixture = with_experts(dense, "gemma4");
  TinyModelSpec small = dense, all = mixture;
  small.n_sharing_layers = all.n_sharing_layers = 3;
  small.d_per_layer = all.d_per_layer = 20;
  all.other_form = true;
  return {dense, small, mixture, all};
}

std::vector<FamilyCase> family_cases() {
  std::vector<FamilyCase> cases;
  for (const char* scaling : {"none", "linear", "yarn", "factors"}) {
    cases.push_back({"llama", {.architecture = "llama", .rope_scaling = scaling}});
    if (std::string(scaling) == "factors") continue;
    cases.push_back({"qwen2", {.architecture = "qwen2", .rope_scaling = scaling}});
    cases.push_back({"qwen3", {.architecture = "qwen3", .head_dim = 24, .rope_scaling = scaling}});
  }
  for (const char* architecture : {"llama", "qwen2moe", "qwen3moe", "glm4moe", "deepseek2", "gpt-oss"})
    cases.push_back({"experts", with_experts({}, architecture)});
  for (const char* scaling : {"linear", "yarn"})
    cases.push_back({"latents", with_experts({.head_dim = 24, .rope_scaling = scaling}, "deepseek2")});
  // What libllama takes for DeepSeek-V2-Lite, whose queries come at once.
  cases.push_back({"queries at once", with_experts({.n_layers = 27, .latent_q_rank = 0}, "deepseek2")});
  cases.push_back({"yarn", with_experts({.rope_scaling = "yarn"}, "gpt-oss")});
  // On a CPU ggml takes GELU of -10 to 10 from a table, of numbers that are rounded to f16. That moves logits as far as
  // libllama is from the same graph of ours (2e-3). Where next to nothing lies in that range all else agrees as usual.
  for (const float gate_scale : {1.0f, 1e5f})
    for (const char* architecture : {"gemma", "gemma2", "gemma3"})
      for (const char* scaling : {"none", "linear"})
        cases.push_back({gate_scale == 1.0f ? "table of f16" : "steep",
                         {.architecture = architecture,
                          .n_layers = 6,
                          .head_dim = 24,
                          .tied = true,
                          .gate_scale = gate_scale,
                          .rope_scaling = scaling,
                          .rope_base = 1e6f},
                         gate_scale == 1.0f ? 1e-2 : 1e-4});
  for (const float gate_scale : {1.0f, 1e5f})
    for (const bool linear : {false, true})
      for (const TinyModelSpec& spec : gemma4_models()) {
        cases.push_back({gate_scale == 1.0f ? "table of f16" : "steep", spec, gate_scale == 1.0f ? 1e-2 : 1e-4});
        cases.back().spec.gate_scale = gate_scale;
        if (linear) cases.back().spec.rope_scaling = "linear";
      }
  for (const char* architecture : {"qwen3next", "qwen35", "qwen35moe"})
    for (const int32_t head_dim : {16, 24})
      cases.push_back({"hybrid", of_family({.n_layers = 6, .head_dim = head_dim}, architecture)});
  cases.push_back({"llama tied", {.architecture = "llama", .tied = true}});
  cases.push_back({"llama with biases", {.architecture = "llama", .attention_bias = true}});
  cases.push_back({"llama, head of 32 and one kv head", {.n_heads = 2, .n_kv_heads = 1, .head_dim = 32}});
  cases.push_back({"qwen2 tied, base 1e6", {.architecture = "qwen2", .tied = true, .rope_base = 1e6f}});
  return cases;
}

TEST(Oracle, UnquantisedModelsOfEveryFamilyAgreeWithLibllama) {
  for (const FamilyCase& c : family_cases()) {
    const std::string path = write_tiny_model(c.spec, temp_path("family.gguf"));
    const ModelFile model = open_model(path);
    const std::vector<Token> tokens = Dice(3).tokens(160, model.hparams().n_vocab);
    const auto theirs = Oracle(path, 256).logits(tokens, 1);
    for (const char* device : kDevices) {
      std::vector<int32_t> cuts = {1, 3};
      std::erase_if(cuts, [&](int32_t cut) { return model.hparams().parted_by(cut) >= 0; });
      Pipeline pipeline(model, {.cuts = cuts, .devices = {device}});
      const auto ours = text_logits(pipeline, tokens, 32);
      double most = 0.0;
      for (size_t i = 0; i < tokens.size(); ++i) most = std::max(most, largest_difference(ours[i], theirs[i]));
      EXPECT_LT(most, c.bound) << c.spec.architecture << ", " << c.name << ", rope scaling " << c.spec.rope_scaling
                               << ", " << device;
    }
  }
}

TEST(Oracle, QuantisedModelsAreAsGoodAsLibllama) {
  for (const ggml_type type :
       {GGML_TYPE_F16,    GGML_TYPE_BF16,   GGML_TYPE_Q4_0,  GGML_TYPE_Q4_1,  GGML_TYPE_Q5_0,  GGML_TYPE_Q5_1,
        GGML_TYPE_Q8_0,   GGML_TYPE_Q2_K,   GGML_TYPE_Q3_K,  GGML_TYPE_Q4_K,  GGML_TYPE_Q5_K,  GGML_TYPE_Q6_K,
        GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4, GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0, GGML_TYPE_Q1_0,
        GGML_TYPE_Q2_0,   GGML_TYPE_IQ2_S,  GGML_TYPE_IQ3_S}) {
    TinyModelSpec spec{.n_layers = 2, .d_model = 256, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .d_ff = 512};
    spec.type = type;
    spec.output_scale = 2.5f;  // about as sure as SmolLM2 is of an English text: 3.2 nats
    SCOPED_TRACE(ggml_type_name(type));
    const std::string path = write_tiny_model(spec, temp_path("quantised.gguf"));
    const ModelFile model = open_model(path);
    const std::vector<Token> tokens = Dice(7).tokens(128, model.hparams().n_vocab);
    const Reference libllama = reference(path, tokens);
    for (const char* device : kDevices) {
      SCOPED_TRACE(device);
      Pipeline pipeline(model, {.devices = {device}});
      const Logits ours = text_logits(pipeline, tokens, 64);
      if (device == kDevices[0]) expect_the_best_tokens_of(libllama, ours);
      // Of the types whose activations libllama rounds in blocks of 256, ours are nearer to what is not rounded.
      EXPECT_LT(mean_kl(libllama.logits, ours), std::max(1e-3, 1.5 * mean_kl(libllama.unrounded, libllama.logits)));
      EXPECT_LE(error_ratio(libllama, ours), 1.05);
    }
  }
}

// Where rounding moves a token to another expert its logits jump, in libllama as here, and a few such tokens are most
// of the mean KL. So without them the KL must be as good, and of them there must be no more than chance explains.
TEST(Oracle, QuantisedModelsOfOtherFamiliesAreAsGoodAsLibllama) {
  constexpr double kJump = 6.0;  // times the median error
  const std::pair<const char*, ggml_type> cases[] = {
      {"qwen3moe", GGML_TYPE_Q4_K},  {"qwen2moe", GGML_TYPE_Q8_0},  {"glm4moe", GGML_TYPE_Q4_1},
      {"gpt-oss", GGML_TYPE_MXFP4},  {"deepseek2", GGML_TYPE_Q8_0}, {"gemma2", GGML_TYPE_Q4_K},
      {"gemma3", GGML_TYPE_Q4_0},    {"qwen3next", GGML_TYPE_Q8_0}, {"qwen35", GGML_TYPE_Q4_K},
      {"qwen35moe", GGML_TYPE_Q8_0}, {"gemma4", GGML_TYPE_Q8_0}};
  double jumps = 0, jumps_of_libllama = 0;
  for (const auto& [architecture, type] : cases) {
    SCOPED_TRACE(architecture);
    TinyModelSpec spec{.n_layers = 2, .d_model = 256, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .d_ff = 512};
    // The last has attention, or sees everything.
    if (find_family(architecture)->delta.have || find_family(architecture)->windows.own_heads) spec.n_layers = 3;
    spec.delta_head_dim = 64;
    spec.type = type;
    spec.output_scale = 2.5f;
    const std::string path = write_tiny_model(of_family(spec, architecture), temp_path("quantised.gguf"));
    const ModelFile model = open_model(path);
    const std::vector<Token> tokens = Dice(7).tokens(1000, model.hparams().n_vocab);
    const Reference libllama = reference(path, tokens);
    std::vector<double> errors;
    for (size_t i = 0; i < tokens.size(); ++i)
      errors.push_back(rms_difference(libllama.unrounded[i], libllama.logits[i]));
    std::vector<double> rising = errors;
    std::ranges::nth_element(rising, rising.begin() + std::ssize(rising) / 2);
    const double bound = kJump * rising[rising.size() / 2];
    for (const char* device : kDevices) {
      SCOPED_TRACE(device);
      Pipeline pipeline(model, {.cuts = {1}, .devices = {device}});
      const Logits ours = text_logits(pipeline, tokens, 64);
      if (device == kDevices[0]) expect_the_best_tokens_of(libllama, ours);
      Logits unrounded, mine, theirs;  // of tokens that didn't jump
      for (size_t i = 0; i < tokens.size(); ++i) {
        const bool jumped = rms_difference(libllama.unrounded[i], ours[i]) > bound, theirs_jumped = errors[i] > bound;
        jumps += jumped;
        jumps_of_libllama += theirs_jumped;
        if (jumped || theirs_jumped) continue;
        unrounded.push_back(libllama.unrounded[i]);
        mine.push_back(ours[i]);
        theirs.push_back(libllama.logits[i]);
      }
      EXPECT_GT(unrounded.size(), tokens.size() * 9 / 10);
      const double of_libllamas = mean_kl(unrounded, mine) / mean_kl(unrounded, theirs);
      EXPECT_LE(of_libllamas, 1.05);
      RecordProperty(std::string(architecture) + (device == kDevices[0] ? "" : "_ggml"), std::to_string(of_libllamas));
    }
  }
  EXPECT_LE(jumps, jumps_of_libllama + 2.0 * std::sqrt(jumps + jumps_of_libllama));
}

// With nothing rounded, 30 layers of a real model agree as the tiny ones do: KL 7e-12, and 9.6e-5 at most on a
// processor with AVX-512. libllama's last bits are other ones on another.
TEST(Oracle, TheDefaultModelsWeightsAsF32AgreeWithLibllama) {
  const std::string quantised = default_model_path();
  if (quantised.empty()) GTEST_SKIP() << "the default model is not installed; ./run fetches it";
  const std::string path = temp_path("wide.gguf");
  write_as_f32(quantised, path);
  const ModelFile model = open_model(path);
  const std::vector<Token> tokens = english_text(model, 512);
  auto theirs = std::async(std::launch::async, [&] { return Oracle(path, 512).logits(tokens, 64); });
  Pipeline pipeline(model, {});
  const Logits ours = text_logits(pipeline, tokens, 64);
  const Logits libllama = theirs.get();
  double most = 0.0;
  for (size_t i = 0; i < tokens.size(); ++i) most = std::max(most, largest_difference(ours[i], libllama[i]));
  EXPECT_LT(most, 2e-4);
  EXPECT_LT(mean_kl(libllama, ours), 1e-9);
}

// Q4_1 in 30 layers rounds so much that libllama is more than 1e-3 away from itself: KL 2.9e-3 between the widths 1 and
// 4 (3e-12 with the same weights as f32), and 2.5e-3 from activations that are not rounded. A difference in the last
// bit of a sum moves some values to the next of 255 steps, each of those moves more in the layers above, and in the end
// the two have rounded almost independently. Other texts give the same; docs/kernels.md has the figures. To be closer
// would be to repeat the accidents of one width, so the bound is what libllama's own rounding costs and half as much
// again (independent errors of one size would give twice as much).
TEST(Oracle, TheDefaultModelIsAsGoodAsWithLibllama) {
  const std::string path = default_model_path();
  if (path.empty()) GTEST_SKIP() << "the default model is not installed; ./run fetches it";
  const ModelFile model = open_model(path);
  const std::vector<Token> tokens = english_text(model, 512);
  Pipeline pipeline(model, {.threads = 2});
  const Logits ours = text_logits(pipeline, tokens, 64);
  const Reference libllama = reference(path, tokens);
  expect_the_best_tokens_of(libllama, ours);
  EXPECT_LT(mean_kl(libllama.logits, ours), std::max(1e-3, 1.5 * mean_kl(libllama.unrounded, libllama.logits)));
  EXPECT_LE(error_ratio(libllama, ours), 1.1);  // 0.93 to 1.05 on six texts
}

}  // namespace
}  // namespace sluice::test
