#include "serve/family.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "serve/teller.h"
#include "support/harness.h"
#include "support/tiny_model.h"

namespace sluice::test {

namespace fs = std::filesystem;
using nlohmann::json;

std::string family_template() {
  std::ifstream file(fs::path(SLUICE_SOURCE_DIR) / ".venv/llama/share/llama-common/templates/Qwen-Qwen3-0.6B.jinja");
  return {std::istreambuf_iterator<char>(file), {}};
}

const Session& family_session() {
  static const Session session = [] {
    TinyModelSpec spec = narrow_model(4);
    spec.context_length = 2048;
    spec.chat_template = family_template();
    SessionOptions options{.model = write_tiny_model(spec, temp_path("family.gguf")), .threads = 1};
    options.reads_answers = true;
    auto opened = Session::open(options);
    if (!opened) throw std::runtime_error(opened.error().message);
    return std::move(*opened);
  }();
  return session;
}

AnswerFormat family_format(const json& tools) {
  AnswerRequest request{.conversation = {.messages = {{.role = "user", .content = "Weather?"}}}};
  request.conversation.tools = nlohmann::ordered_json::parse(tools.dump());
  request.parallel_tool_calls = true;
  auto question = family_session().question(request);
  if (!question) throw std::runtime_error(question.error().message);
  return question->format.value();
}

std::string told(std::unique_ptr<AnswerForm> form, const json& tools, const std::vector<std::string>& pieces,
                 bool stream, const AnswerEnd& end) {
  const auto exchange = std::make_shared<Kept>();
  Teller teller(std::move(form), {.stream = stream}, family_session().tokenizer(), exchange, family_session().answers(),
                family_format(tools));
  teller.take({});
  for (const std::string& piece : pieces) teller.take({.text = piece});
  teller.take({.end = end});
  return exchange->wait().body;
}

}  // namespace sluice::test
