#include "chat/oracle.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace sluice::test {
namespace {

const std::string kRoot = SLUICE_SOURCE_DIR;

std::optional<std::string> python_with_jinja() {
  for (const std::string& python :
       {kRoot + "/.venv/bin/python", std::string("/usr/bin/python3"), std::string("python3")}) {
    if (std::system(("'" + python + "' -c 'import jinja2' >/dev/null 2>&1").c_str()) == 0) return python;
  }
  return std::nullopt;
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::optional<std::vector<OracleAnswer>> ask_jinja(const std::vector<OracleCase>& cases) {
  const auto python = python_with_jinja();
  if (!python) return std::nullopt;
  nlohmann::ordered_json questions = nlohmann::ordered_json::array();
  for (const OracleCase& c : cases)
    questions.push_back({{"template", c.template_text}, {"variables", c.variables}, {"now", kNow}});
  const auto folder = std::filesystem::temp_directory_path() / ("sluice-jinja-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string in = folder / "cases.json", out = folder / "answers.json";
  std::ofstream(in) << questions.dump();
  const std::string command = "'" + *python + "' '" + kRoot + "/tests/chat/oracle.py' '" + in + "' '" + out + "'";
  const int status = std::system(command.c_str());
  const auto answers = nlohmann::json::parse(status == 0 ? read_file(out) : "[]");
  std::filesystem::remove_all(folder);
  std::vector<OracleAnswer> result;
  for (const auto& answer : answers) {
    if (answer.contains("text")) {
      result.push_back({answer["text"].get<std::string>(), ""});
    } else {
      result.push_back({std::nullopt, answer["error"].get<std::string>()});
    }
  }
  return result;
}

Result<std::string> render_ours(const OracleCase& c) {
  SLUICE_TRY(const auto chat_template, ChatTemplate::open(c.template_text));
  ChatTemplateInput input;
  input.extra = c.variables;
  input.now = kNow;
  return chat_template.render(input);
}

}  // namespace sluice::test
