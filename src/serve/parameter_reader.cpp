#include "serve/parameter_reader.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "serve/format_reader.h"
#include "serve/json_values.h"
#include "serve/policy.h"

namespace sluice {

namespace {

using json = nlohmann::ordered_json;

using Read = ApiStatus (*)(const json& value, const std::string& param, Asked& asked);

template <float SamplingParams::*kField>
ApiStatus read_float(const json& value, const std::string& param, double low, double high, bool above, Asked& asked) {
  SLUICE_API_TRY(const double x, read_number(value, param, low, high, above));
  asked.spec.sampling.*kField = static_cast<float>(x);
  return {};
}

ApiStatus read_temperature(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::temperature>(value, param, 0, 100, false, asked);
}
ApiStatus read_top_p(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::top_p>(value, param, 0, 1, true, asked);
}
ApiStatus read_min_p(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::min_p>(value, param, 0, 1, false, asked);
}
ApiStatus read_repeat_penalty(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::repeat_penalty>(value, param, 0, 100, true, asked);
}

ApiStatus read_presence_penalty(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::presence_penalty>(value, param, -2, 2, false, asked);
}
ApiStatus read_frequency_penalty(const json& value, const std::string& param, Asked& asked) {
  return read_float<&SamplingParams::frequency_penalty>(value, param, -2, 2, false, asked);
}

ApiStatus read_top_k(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.spec.sampling.top_k, read_whole(value, param, 0, INT32_MAX));
  return {};
}

ApiStatus read_max_tokens(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.spec.max_tokens, read_whole(value, param, 1, INT32_MAX));
  return {};
}

// llama-server's name for it.
ApiStatus read_n_predict(const json& value, const std::string& param, Asked& asked) {
  return value == -1 ? ApiStatus() : read_max_tokens(value, param, asked);  // -1: as many as the server allows
}

ApiStatus read_seed(const json& value, const std::string& param, Asked& asked) {
  if (!value.is_number_integer()) return bad_parameter(param, "must be a whole number of 64 bits");
  asked.spec.sampling.seed = value.get<uint64_t>();  // a negative one as its two's complement
  return {};
}

ApiStatus read_stop(const json& value, const std::string& param, Asked& asked) {
  const json all = value.is_string() ? json::array({value}) : value;
  const auto is_stop = [](const json& stop) {
    return stop.is_string() && !stop.get_ref<const std::string&>().empty() &&
           stop.get_ref<const std::string&>().size() <= policy::kLongestStop;
  };
  if (!all.is_array() || all.size() > policy::kMostStops || !std::ranges::all_of(all, is_stop))
    return bad_parameter(param, "must be a text or a list of up to " + std::to_string(policy::kMostStops) +
                                    " texts, each of 1 to " + std::to_string(policy::kLongestStop) + " bytes");
  asked.stops = all.get<std::vector<std::string>>();
  return {};
}

ApiStatus read_logit_bias(const json& value, const std::string& param, Asked& asked) {
  const std::string wanted =
      "must be an object of up to " + std::to_string(policy::kMostBiases) + " token ids, each with a number";
  if (!value.is_object() || value.size() > policy::kMostBiases) return bad_parameter(param, wanted);
  for (const auto& [id, bias] : value.items()) {
    const bool digits = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == id.npos;
    if (!digits) return bad_parameter(param, wanted);
    SLUICE_API_TRY(const double x, read_number(bias, param + "." + id, -100, 100));
    asked.spec.sampling.logit_bias.emplace_back(std::stoi(id), static_cast<float>(x));
  }
  return {};
}

ApiStatus read_n(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.choices, read_whole(value, param, 1, policy::kMostChoices));
  return {};
}

// Of chats whether, of texts of how many.
ApiStatus read_logprobs(const json& value, const std::string& param, Asked& asked) {
  if (asked.api == Api::kCompletions && value != false) {
    SLUICE_API_TRY(asked.spec.sampling.top_logprobs, read_whole(value, param, 0, kMostTopLogprobs));
    asked.spec.logprobs = true;
    return {};
  }
  SLUICE_API_TRY(asked.spec.logprobs, read_flag(value, param));
  return {};
}

ApiStatus read_top_logprobs(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(const int32_t n, read_whole(value, param, 0, kMostTopLogprobs));
  if (n == 0) return {};
  if (asked.api == Api::kCompletions) return bad_parameter(param, "is for chats: here logprobs says how many");
  asked.spec.sampling.top_logprobs = n;
  return {};
}

ApiStatus read_stream(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.stream, read_flag(value, param));
  return {};
}

ApiStatus read_stream_options(const json& value, const std::string& param, Asked& asked) {
  if (!value.is_object()) return bad_parameter(param, "must be an object, as in {\"include_usage\": true}");
  for (const auto& [name, option] : value.items()) {
    if (name != "include_usage") return bad_parameter(param + "." + name, "unknown; there is include_usage");
    if (option.is_null()) continue;
    SLUICE_API_TRY(asked.include_usage, read_flag(option, param + "." + name));
  }
  return {};
}

ApiStatus read_resumable(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.resumable, read_flag(value, param));
  return {};
}

ApiStatus read_ignore_eos(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.spec.ignore_end, read_flag(value, param));
  return {};
}

ApiStatus read_verbose(const json& value, const std::string& param, Asked& asked) {
  SLUICE_API_TRY(asked.verbose, read_flag(value, param));
  return {};
}

// Read before all others.
ApiStatus nothing(const json&, const std::string&, Asked&) { return {}; }

struct Parameter {
  const char* name;
  Read read;
};
constexpr Parameter kParameters[] = {{"model", nothing},
                                     {"method", nothing},
                                     {"width", nothing},
                                     {"depth", nothing},
                                     {"max_tokens", read_max_tokens},
                                     {"max_completion_tokens", read_max_tokens},
                                     {"n_predict", read_n_predict},
                                     {"temperature", read_temperature},
                                     {"top_p", read_top_p},
                                     {"top_k", read_top_k},
                                     {"min_p", read_min_p},
                                     {"repeat_penalty", read_repeat_penalty},
                                     {"presence_penalty", read_presence_penalty},
                                     {"frequency_penalty", read_frequency_penalty},
                                     {"logit_bias", read_logit_bias},
                                     {"n", read_n},
                                     {"logprobs", read_logprobs},
                                     {"top_logprobs", read_top_logprobs},
                                     {"seed", read_seed},
                                     {"stop", read_stop},
                                     {"stream", read_stream},
                                     {"stream_options", read_stream_options},
                                     {"resumable", read_resumable},
                                     {"ignore_eos", read_ignore_eos},
                                     {"verbose", read_verbose},
                                     {"response_format", read_response_format},
                                     {"json_schema", read_json_schema},
                                     {"grammar", read_grammar},
                                     {"regex", read_regex}};

constexpr std::string_view kCommon[] = {"model",
                                        "method",
                                        "width",
                                        "depth",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "repeat_penalty",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "logit_bias",
                                        "seed",
                                        "stream",
                                        "resumable",
                                        "ignore_eos"};

// Of which one value alone is supported, the one that changes nothing.
struct Fixed {
  const char* name;
  json value;
};
const std::vector<Fixed>& fixed_parameters() {
  static const std::vector<Fixed> fixed = {{"best_of", 1},           {"echo", false},         {"suffix", ""},
                                           {"tools", json::array()}, {"tool_choice", "none"}, {"modalities", {"text"}}};
  return fixed;
}

// Which say nothing of the text, the last ones to llama-server.
constexpr std::string_view kIgnored[] = {"user",
                                         "metadata",
                                         "store",
                                         "service_tier",
                                         "safety_identifier",
                                         "prompt_cache_key",
                                         "parallel_tool_calls",
                                         "cache_prompt",
                                         "id_slot",
                                         "timings_per_token",
                                         "return_progress"};

template <class T>
const T* find_named(const T* begin, const T* end, const std::string& name) {
  const T* const at = std::find_if(begin, end, [&](const T& one) { return name == one.name; });
  return at == end ? nullptr : at;
}

}  // namespace

ApiStatus read_parameter(const std::string& name, const json& value, Asked& asked, const std::string& called) {
  if (value.is_null() || std::ranges::count(kIgnored, name) > 0) return {};
  if (const Parameter* known = find_named(std::begin(kParameters), std::end(kParameters), name))
    return known->read(value, called.empty() ? name : called, asked);
  const auto& fixed = fixed_parameters();
  const Fixed* const one = find_named(fixed.data(), fixed.data() + fixed.size(), name);
  if (one == nullptr) return bad_parameter(name, "there is no such parameter here");
  if (value == one->value) return {};
  return bad_parameter(
      name, "not supported: leave it out" + (one->value.empty() ? std::string() : ", or give " + one->value.dump()));
}

bool is_common_parameter(std::string_view name) { return std::ranges::count(kCommon, name) > 0; }

ApiStatus check_parameters(const Asked& asked) {
  if (asked.include_usage && !asked.stream)
    return bad_parameter("stream_options", "is for \"stream\": true; leave it out");
  if (asked.resumable && !asked.stream) return bad_parameter("resumable", "is for \"stream\": true; leave it out");
  if (asked.spec.sampling.top_logprobs > 0 && !asked.spec.logprobs)
    return bad_parameter("top_logprobs", "is for \"logprobs\": true; leave it out");
  if (asked.form && asked.spec.ignore_end)
    return bad_parameter("ignore_eos", "the answer ends where its form does: leave it out");
  return {};
}

}  // namespace sluice
