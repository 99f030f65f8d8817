#include "cli/bench_prompts.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace sluice {

namespace {

using nlohmann::json;

Result<BenchPrompt> parse_prompt(const std::string& line, const std::string& task, int number,
                                 const std::string& where) {
  const json j = json::parse(line, nullptr, false);
  if (!j.is_object() || !j.contains("turns") || !j["turns"].is_array() || j["turns"].empty())
    return input_error(where +
                       "not a JSON object with a list \"turns\", as in {\"id\": \"1\", \"turns\": [\"Hello!\"]}");
  BenchPrompt prompt{.task = task, .id = std::to_string(number), .turns = {}, .max_tokens = {}};
  if (j.contains("id")) prompt.id = j["id"].is_string() ? j["id"].get<std::string>() : j["id"].dump();
  for (const auto& turn : j["turns"]) {
    if (!turn.is_string() || turn.get_ref<const std::string&>().empty())
      return input_error(where + "a turn must be a text that is not empty");
    prompt.turns.push_back(turn.get<std::string>());
  }
  if (j.contains("max_tokens")) {
    const json& n = j["max_tokens"];
    if (!n.is_number_integer() || n < 1 || n > std::numeric_limits<int32_t>::max())
      return input_error(where + "\"max_tokens\" must be a whole number, 1 or more");
    prompt.max_tokens = n.get<int32_t>();
  }
  return prompt;
}

}  // namespace

Result<std::vector<BenchPrompt>> read_prompts(const std::string& directory, const std::string& task, int32_t limit) {
  const std::string path = (std::filesystem::path(directory) / (task + ".jsonl")).string();
  std::ifstream file(path);
  if (!file) return input_error("--data " + directory + ": there is no readable file " + path + "; see --tasks");
  std::vector<BenchPrompt> prompts;
  std::set<std::string> ids;
  std::string line;
  for (int number = 1; static_cast<int32_t>(prompts.size()) < limit && std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const std::string where = path + ":" + std::to_string(number) + ": ";
    SLUICE_TRY(auto prompt, parse_prompt(line, task, number, where));
    if (!ids.insert(prompt.id).second)
      return input_error(where + "the id \"" + prompt.id + "\" is that of an earlier line too");
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return input_error(path + ": holds no prompt, or cannot be read");
  return prompts;
}

}  // namespace sluice
