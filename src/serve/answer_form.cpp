#include "serve/answer_form.h"

#include <spdlog/fmt/fmt.h>

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

}  // namespace sluice
