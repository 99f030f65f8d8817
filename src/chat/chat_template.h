// The chat template in a model file, rendered by libllama-common's Jinja engine.
//
// What is rendered is what llama.cpp renders, and for templates of published models what transformers does
// (tests/chat/chat_template_test.cpp compares both with Jinja itself and lists where they differ: None prints as
// nothing, a list without brackets; texts are cut and counted in bytes). A template is not trusted, nor is the engine
// with it: a helper process renders, within bounds of time, memory and output.
#pragma once

#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/helper_process.h"
#include "base/result.h"

namespace sluice {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  nlohmann::ordered_json extra =
      {};  // an object or null: more members of the message, such as tool_calls; may replace the two above
};

struct ChatTemplateInput {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  std::string bos_token, eos_token;
  nlohmann::ordered_json tools = {};  // an array of function descriptions, or null
  nlohmann::ordered_json extra = {};  // an object or null: more variables; may replace those above
  std::optional<std::time_t> now;     // what strftime_now sees; the clock if not given
};

// Thread safety: render() may be called by several threads at once.
class ChatTemplate {
 public:
  // Parses a Jinja template; an error quotes the place. REQUIRES: the process has one thread (HelperProcess).
  static Result<ChatTemplate> open(std::string source);

  // An error names the line, and carries the template's own message when it calls raise_exception.
  Result<std::string> render(const ChatTemplateInput& input) const;

 private:
  explicit ChatTemplate(HelperProcess helper);
  HelperProcess helper_;
};

}  // namespace sluice
