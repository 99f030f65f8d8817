#include "session/kept_plan.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "base/file.h"
#include "base/hash.h"

namespace sluice {

namespace {

using nlohmann::json;

std::string plans_folder() { return cache_folder() + "/plans"; }

std::string hash_of(const std::string& text) {
  return fmt::format("{:016x}", fnv1a(std::as_bytes(std::span(text.data(), text.size()))));
}

}  // namespace

std::string PlanKey::text() const {
  return fmt::format("model {}, drafts {}, hosts {}, {} stages, pace {}{}{}", model, fmt::join(drafts, " "),
                     fmt::join(hosts, " "), stages, pace, devices.empty() ? "" : ", devices ", fmt::join(devices, " "));
}

std::string PlanKey::path() const { return plans_folder() + "/" + hash_of(text()) + ".json"; }
std::string PlanKey::profile_path() const { return plans_folder() + "/" + hash_of(text()) + ".profile.json"; }

std::string pace_of(const Profile& profile) { return hash_of(profile.to_json().dump()); }

std::optional<Contender> KeptPlan::best(bool with_draft) const {
  const auto all = contenders(with_draft);
  const auto at = std::ranges::find(all, contender, &Contender::name);
  return at == all.end() ? std::nullopt : std::optional(*at);
}

bool has_plans() {
  std::error_code error;
  return std::filesystem::exists(plans_folder(), error);
}

// A file that is broken, or of another release, is as good as none: the plan can always be made again.
std::optional<KeptPlan> find_plan(const PlanKey& key) {
  std::ifstream file(key.path());
  if (!file) return std::nullopt;
  const json j = json::parse(file, nullptr, /*allow_exceptions=*/false);
  try {
    if (j.at("for") != key.text()) return std::nullopt;
    const auto draft_on = DraftPlace::parse(j.at("draft_on").get<std::string>());
    if (!draft_on) return std::nullopt;
    return KeptPlan{.cuts = j.at("cuts").get<std::vector<int32_t>>(),
                    .draft_on = *draft_on,
                    .contender = j.at("best").get<std::string>(),
                    .tokens_per_second = j.at("tokens_per_second").get<double>(),
                    .plain_tokens_per_second = j.at("plain_tokens_per_second").get<double>()};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

Status keep_plan(const PlanKey& key, const KeptPlan& plan) {
  const std::string path = key.path();
  std::error_code ignored;
  std::filesystem::create_directories(plans_folder(), ignored);
  const json j = {{"for", key.text()},
                  {"cuts", plan.cuts},
                  {"draft_on", plan.draft_on.text()},
                  {"best", plan.contender},
                  {"tokens_per_second", plan.tokens_per_second},
                  {"plain_tokens_per_second", plan.plain_tokens_per_second}};
  if (const auto error = write_whole(path, j.dump(1) + "\n"))
    return runtime_error(path + ": the plan can't be kept: " + error.message());
  return {};
}

}  // namespace sluice
