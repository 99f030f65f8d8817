// What tells whoever watches a server how it does.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "serve/request_reader.h"
#include "serve/tally.h"
#include "session/session.h"

namespace sluice {

// In Prometheus' text format, of this type. What other servers count too has the names of vLLM, the rest sluice_*.
inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
std::string metrics_page(const EngineReport& report, const std::string& model);

// Memory of this process that is resident.
size_t resident_bytes();

// How an answer is drawn and how long it may be, in llama-server's words.
nlohmann::ordered_json sampling_settings(const SamplingParams& sampling, size_t max_tokens);

// As llama-server has them, as far as they mean something here: what a request gets that does not say, the template;
// requests that run, and slots that are free for such with a full context.
nlohmann::ordered_json props_page(const Session& session, const ServeDefaults& defaults);
nlohmann::ordered_json slots_page(const EngineReport& report, const Session& session, const ServeDefaults& defaults);

}  // namespace sluice
