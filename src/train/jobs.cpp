#include "train/jobs.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/hash.h"
#include "base/random.h"

namespace sluice {

namespace {

PromptGroup& group_of(std::vector<PromptGroup>& groups, const std::string& source) {
  for (PromptGroup& group : groups)
    if (group.source == source) return group;
  return groups.emplace_back(PromptGroup{source, {}});
}

const nlohmann::json* find_prompt(const nlohmann::json& j) {
  if (!j.is_object()) return nullptr;
  if (j.contains("prompt")) return &j["prompt"];
  if (j.contains("turns") && j["turns"].is_array() && !j["turns"].empty()) return &j["turns"].front();
  return nullptr;
}

// Fisher-Yates.
std::vector<uint32_t> shuffled(size_t n, uint64_t seed, uint32_t group) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (size_t i = n; i > 1; --i) {
    const double u =
        uniform({.seed = seed, .choice = group, .position = static_cast<uint32_t>(i), .purpose = Purpose::kDraft}, 0);
    std::swap(order[i - 1], order[static_cast<size_t>(u * static_cast<double>(i))]);
  }
  return order;
}

}  // namespace

Result<std::vector<PromptGroup>> read_prompt_groups(const std::vector<std::string>& paths) {
  std::vector<PromptGroup> groups;
  for (const auto& path : paths) {
    std::ifstream file(path);
    if (!file) return input_error("--prompts " + path + ": there is no such readable file");
    std::string line;
    size_t found = 0;
    for (int number = 1; std::getline(file, line); ++number) {
      if (line.empty()) continue;
      const auto j = nlohmann::json::parse(line, nullptr, false);
      const auto* prompt = find_prompt(j);
      const std::string where = path + ":" + std::to_string(number) + ": ";
      if (prompt == nullptr || !prompt->is_string() || prompt->get_ref<const std::string&>().empty())
        return input_error(where + "not a JSON object with a text \"prompt\", as in {\"prompt\": \"Hello!\"}");
      const std::string source = j.contains("source") && j["source"].is_string()
                                     ? j["source"].get<std::string>()
                                     : std::filesystem::path(path).stem().string();
      group_of(groups, source).prompts.push_back(prompt->get<std::string>());
      ++found;
    }
    if (found == 0) return input_error("--prompts " + path + ": holds no prompt");
  }
  return groups;
}

JobList::JobList(const std::vector<PromptGroup>& groups, int32_t n_self, std::vector<float> temperatures, uint64_t seed,
                 size_t n_openings)
    : temperatures_(std::move(temperatures)) {
  SLUICE_CHECK(!temperatures_.empty(), "a temperature");
  for (const PromptGroup& group : groups) {
    const size_t size = group.prompts.size();
    groups_.push_back({.prompts = &group,
                       .order = shuffled(size, seed, static_cast<uint32_t>(groups_.size())),
                       .size = size,
                       .weight = std::sqrt(static_cast<double>(size))});
  }
  for (size_t opening = 0; n_self > 0 && opening < n_openings; ++opening)
    groups_.push_back({.opening = opening, .size = static_cast<size_t>(n_self), .weight = std::sqrt(n_self)});
}

// Stride scheduling.
JobList::Group* JobList::choose() {
  Group* best = nullptr;
  double best_stride = 0;
  for (Group& group : groups_) {
    if (group.exhausted || group.size == 0) continue;
    const double stride = (static_cast<double>(group.uses) + 0.5) / group.weight;
    if (best == nullptr || stride < best_stride) best = &group, best_stride = stride;
  }
  return best;
}

std::optional<float> JobList::temperature(size_t prompt, size_t pass) const {
  const size_t n = temperatures_.size();
  for (size_t i = 0; i < n; ++i) {
    const float t = temperatures_[(prompt + pass + i) % n];
    if (t > 0 || pass < n) return t;
  }
  return std::nullopt;
}

Split split_of(std::string_view prompt) {
  const uint64_t h = fnv1a(std::as_bytes(std::span(prompt)));
  return (h ^ (h >> 32)) % kHeldOutOneIn == 0 ? Split::kHeldOut : Split::kTrain;
}

std::optional<Job> JobList::next() {
  while (Group* group = choose()) {
    const size_t pass = group->uses / group->size, at = group->uses % group->size;
    const auto t = temperature(at, pass);
    if (!t || (group->prompts == nullptr && pass > 0)) {
      group->exhausted = true;
      continue;
    }
    ++group->uses;
    Job job{.id = next_id_++, .opening = group->opening, .temperature = *t};
    if (group->prompts != nullptr) job.prompt = &group->prompts->prompts[group->order[at]];
    return job;
  }
  return std::nullopt;
}

}  // namespace sluice
