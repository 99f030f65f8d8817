// The chat template in a model file, rendered as Jinja renders it.
//
// What is rendered is what transformers renders: Jinja 3.1 in its immutable sandbox with trim_blocks and lstrip_blocks,
// the loop controls, {% generation %}, raise_exception, strftime_now and transformers' tojson. Not there: template
// inheritance and imports, recursive loops, integers beyond 64 bits, format specifications in str.format, and a few
// filters that no chat template has use for (urlize, xmlattr, groupby, …); using one is an error. A template is not
// trusted: its depth, its work and its output are bounded, and exceeding a bound is an error.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  // Parses a Jinja template with the options that transformers uses (trim_blocks, lstrip_blocks). An error names the
  // line.
  static Result<ChatTemplate> parse(std::string_view source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // An error names the line, and carries the template's own message when it calls raise_exception.
  Result<std::string> render(const ChatTemplateInput& input) const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace sluice
