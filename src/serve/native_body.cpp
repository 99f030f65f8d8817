#include "serve/native_body.h"

#include <algorithm>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/json_values.h"
#include "serve/policy.h"
#include "serve/status_pages.h"

namespace sluice {

namespace {

using json = nlohmann::ordered_json;

constexpr float kBan = -1e30f;  // added to a logit

// What would change the answer, or what is told of it, and is not supported.
const std::vector<IdleParameter>& idle_parameters() {
  static const std::vector<IdleParameter> idle = {{"dynatemp_range", {0.0}},
                                                  {"typical_p", {1.0}},
                                                  {"top_n_sigma", {-1.0}},
                                                  {"xtc_probability", {0.0}},
                                                  {"dry_multiplier", {0.0}},
                                                  {"mirostat", {0}},
                                                  {"adaptive_target", {-1.0}},
                                                  {"min_keep", {0}},
                                                  {"n_indent", {0}},
                                                  {"t_max_predict_ms", {0, -1}},
                                                  {"post_sampling_probs", {false}},
                                                  {"lora", {json::array()}},
                                                  {"n_cmpl", {1}},
                                                  {"n", {1}},
                                                  {"echo", {false}},
                                                  {"samplers"}};
  return idle;
}

// Which belong to one of those, or say nothing of the answer; what llama-server takes for granted if it tells them.
struct Silent {
  std::string_view name;
  json otherwise = {};
};
const std::vector<Silent>& silent_parameters() {
  static const std::vector<Silent> silent = {{"dynatemp_exponent", 1.0},
                                             {"xtc_threshold", 0.1},
                                             {"dry_base", 1.75},
                                             {"dry_allowed_length", 2},
                                             {"dry_penalty_last_n", -1},
                                             {"dry_sequence_breakers", json::array()},
                                             {"mirostat_tau", 5.0},
                                             {"mirostat_eta", 0.1},
                                             {"adaptive_decay", 0.9},
                                             {"n_keep", 0},
                                             {"n_discard", 0},
                                             {"timings_per_token", false},
                                             {"backend_sampling", false},
                                             {"n_cache_reuse"},
                                             {"t_max_prompt_ms"},
                                             {"cache_prompt"},
                                             {"id_slot"},
                                             {"return_progress"},
                                             {"sse_ping_interval"},
                                             {"stream_options"},
                                             {"verbose"}};
  return silent;
}

ApiStatus read_probabilities(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.spec.sampling.top_logprobs, read_whole(value, param, 0, kMostTopLogprobs));
  asked.spec.logprobs = asked.spec.sampling.top_logprobs > 0;
  return {};
}

ApiStatus read_fields(const json& value, const std::string& param, Asked& asked) {
  const auto is_text = [](const json& field) { return field.is_string(); };
  if (!value.is_array() || value.size() > policy::kMostFields || !std::ranges::all_of(value, is_text))
    return bad_parameter(param, "must be a list of up to " + std::to_string(policy::kMostFields) + " texts");
  asked.response_fields = value.get<std::vector<std::string>>();
  return {};
}

bool is_any_seed(const json& value) { return value == -1 || value == UINT32_MAX; }

// A token is named by its id or by a text, which may have several. False: it never comes.
ApiStatus add_bias(const json& token, const json& bias, const Tokenizer& tokenizer, Asked& asked) {
  constexpr const char* kParam = "logit_bias";
  float x = kBan;
  if (bias != false) {
    SLUICE_API_TRY(const double given, read_number(bias, kParam, -100, 100));
    x = static_cast<float>(given);
  }
  auto& biases = asked.spec.sampling.logit_bias;
  if (token.is_string()) {
    const auto tokens = tokenizer.encode(token.get_ref<const std::string&>(), /*add_special=*/false,
                                         /*parse_special=*/false);
    if (!tokens) return bad_parameter(kParam, tokens.error().message);
    for (const Token one : *tokens) biases.emplace_back(one, x);
  } else {
    SLUICE_API_TRY(const Token one, read_whole(token, kParam, 0, tokenizer.size() - 1));
    biases.emplace_back(one, x);
  }
  if (biases.size() <= policy::kMostBiases) return {};
  return bad_parameter(kParam, "names too many tokens: there may be " + std::to_string(policy::kMostBiases));
}

// Names of members are ids where they are numbers.
json token_of(const std::string& name) {
  const bool is_id = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
  return is_id ? json(std::stoi(name)) : json(name);
}

ApiStatus read_biases(const json& biases, const Tokenizer& tokenizer, Asked& asked) {
  const auto is_pair = [](const json& one) { return one.is_array() && one.size() == 2; };
  if (biases.is_object()) {
    for (const auto& [name, bias] : biases.items())
      SLUICE_API_TRY_STATUS(add_bias(token_of(name), bias, tokenizer, asked));
    return {};
  }
  if (!biases.is_array() || !std::ranges::all_of(biases, is_pair))
    return bad_parameter("logit_bias", R"(must be a list as [[15043, 1.0], ["Hello", false]], or an object)");
  for (const json& pair : biases) SLUICE_API_TRY_STATUS(add_bias(pair[0], pair[1], tokenizer, asked));
  return {};
}

// A token that never comes has no number.
json biases_of(const Asked& asked, const Tokenizer& tokenizer) {
  json all = json::array();
  for (const auto& [token, bias] : asked.spec.sampling.logit_bias)
    all.push_back({{"token", token}, {"bias", bias == kBan ? json() : json(bias)}});
  if (!asked.spec.ignore_end) return all;
  for (const SpecialText& special : tokenizer.specials())
    if (tokenizer.ends_generation(special.token)) all.push_back({{"token", special.token}, {"bias", nullptr}});
  return all;
}

}  // namespace

ApiStatus read_native_parameter(const std::string& name, const json& value, Asked& asked) {
  constexpr std::string_view kElsewhere[] = {"prompt", "logit_bias", "repeat_last_n"};
  constexpr std::string_view kAsElsewhere[] = {"stop",        "n_predict", "max_tokens", "max_completion_tokens",
                                               "json_schema", "grammar",   "regex"};
  if (value.is_null() || std::ranges::count(kElsewhere, name) > 0) return {};
  if (std::ranges::count(silent_parameters(), name, &Silent::name) > 0) return {};
  if (name == "seed" && is_any_seed(value)) {
    asked.spec.sampling.seed = std::random_device()();
    return {};
  }
  if (name == "n_probs") return read_probabilities(value, name, asked);
  if (name == "response_fields") return read_fields(value, name, asked);
  if (name == "return_tokens") {
    SLUICE_API_TRY(asked.return_tokens, read_flag(value, name));
    return {};
  }
  if (is_common_parameter(name) || std::ranges::count(kAsElsewhere, name) > 0)
    return read_parameter(name, value, asked);
  return read_idle(name, value, idle_parameters());
}

ApiStatus read_native_rest(const json& body, const Tokenizer& tokenizer, Asked& asked) {
  if (is_given(body, "logit_bias")) SLUICE_API_TRY_STATUS(read_biases(body["logit_bias"], tokenizer, asked));
  if (!is_given(body, "repeat_last_n")) return {};
  SLUICE_API_TRY(const int32_t last, read_whole(body["repeat_last_n"], "repeat_last_n", -1, INT32_MAX));
  if (last >= 0 && asked.spec.sampling.repeat_penalty != 1.0f)
    return bad_parameter("repeat_last_n",
                         "repeat_penalty is for all tokens that came before: leave it out, or give -1");
  return {};
}

json native_settings(const Asked& asked, const Tokenizer& tokenizer) {
  const SamplingParams& sampling = asked.spec.sampling;
  json settings = sampling_settings(sampling, static_cast<size_t>(asked.spec.max_tokens));
  settings["presence_penalty"] = sampling.presence_penalty;
  settings["frequency_penalty"] = sampling.frequency_penalty;
  settings["repeat_last_n"] = -1;
  settings["stop"] = asked.stops;
  settings["stream"] = asked.stream;
  settings["ignore_eos"] = asked.spec.ignore_end;
  settings["logit_bias"] = biases_of(asked, tokenizer);
  settings["n_probs"] = sampling.top_logprobs;
  settings["grammar"] = asked.form && asked.form->source.kind == GrammarKind::kGbnf ? asked.form->source.text : "";
  for (const IdleParameter& idle : idle_parameters())
    if (!idle.values.empty()) settings[idle.name] = idle.values.front();
  for (const auto& [name, otherwise] : silent_parameters())
    if (!otherwise.is_null()) settings[std::string(name)] = otherwise;
  settings["samplers"] = {"penalties", "temperature", "top_k", "top_p", "min_p"};
  return settings;
}

}  // namespace sluice
