#include "serve/answer_form.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <random>

namespace sluice {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string event_of(const Json& data, const std::string& name) {
  return (name.empty() ? "" : "event: " + name + "\n") + "data: " + text_of(data) + "\n\n";
}

std::string new_id(const std::string& prefix) {
  std::random_device random;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, random(), random(), random());
}

Json figures_of(const Usage& usage) {
  return {{"method", usage.method},
          {"source", usage.source},
          {"seed", usage.seed},
          {"drafted", usage.drafted},
          {"accepted", usage.accepted},
          {"flushes", usage.flushes},
          {"equivalent_acceptance_length", usage.equivalent_acceptance_length},
          {"tokens_per_second", usage.tokens_per_second},
          {"seconds", {{"prefill", usage.prefill_seconds}, {"decode", usage.decode_seconds}}}};
}

Json timings_of(const Usage& usage) {
  const auto rate = [](int64_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0.0; };
  const auto each = [](int64_t n, double seconds) { return n > 0 ? 1e3 * seconds / static_cast<double>(n) : 0.0; };
  const int64_t computed = usage.prompt_tokens - usage.reused_tokens;
  return {{"cache_n", usage.reused_tokens},
          {"prompt_n", computed},
          {"prompt_ms", 1e3 * usage.prefill_seconds},
          {"prompt_per_token_ms", each(computed, usage.prefill_seconds)},
          {"prompt_per_second", rate(computed, usage.prefill_seconds)},
          {"predicted_n", usage.completion_tokens},
          {"predicted_ms", 1e3 * usage.decode_seconds},
          {"predicted_per_token_ms", usage.tokens_per_second > 0 ? 1e3 / usage.tokens_per_second : 0.0},
          {"predicted_per_second", usage.tokens_per_second},
          {"draft_n", usage.drafted},
          {"draft_n_accepted", usage.accepted}};
}

}  // namespace sluice
