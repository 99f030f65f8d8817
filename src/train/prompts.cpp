#include "train/prompts.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

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

}  // namespace sluice
