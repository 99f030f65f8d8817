// What a family of models writes around its answers, its reasoning and its calls of tools, by libllama-common: the
// grammar that makes a model write it, and how it is read again. Also grammars of JSON schemas.
//
// Templates, schemas and what models write are not trusted, nor is the library with them: a helper process works,
// within bounds of time, memory and output.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/helper_process.h"
#include "base/result.h"
#include "chat/chat_template.h"
#include "wire/sampling.h"

namespace sluice {

struct ToolCall {
  std::string id;  // empty where the family gives none
  std::string name;
  std::string arguments;  // JSON; where the answer is cut off, the beginning of it
  bool operator==(const ToolCall&) const = default;
};

struct AssistantMessage {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  bool operator==(const AssistantMessage&) const = default;
};

enum class ToolChoice : uint8_t { kAuto, kRequired, kNone };

// What is asked of a model.
struct AnswerRequest {
  ChatTemplateInput conversation;  // its tools are those that may be called
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string forced_tool = {};  // where a call is required: the one that is called; empty: any
  bool parallel_tool_calls = false;
  bool thinking = true;  // of templates that can be told; others do as they do
  std::string schema;    // the answer is JSON of this JSON schema; empty: any text
};

struct AnswerFormat {
  // As the library renders it, which mends conversations for templates that know no system message, take arguments as
  // objects, and the like. So ChatText::encode() may render by this; ChatTemplate leaves conversations as they are.
  std::string prompt;
  std::string grammar;        // GBNF; empty: none
  std::string grammar_begin;  // the end of the prompt, which the grammar has before the answer if it is not lazy
  bool lazy = false;          // it begins with a trigger; else with the answer
  std::vector<GrammarTrigger> triggers;
  std::vector<std::string> shown;  // texts of control tokens that parse() must see
  std::vector<std::string> stops;  // texts that end an answer, beside the model's own tokens
  std::string reasoning_begin;     // empty: the family does not reason
  std::vector<std::string> reasoning_ends;
  std::string reader;  // how answers are read: for parse()
};

// Thread safety: may be asked by several threads at once. Those with schemas wait for one another, so do those with
// tools, and all others: what takes long of one kind holds up nobody of another.
class AnswerParser {
 public:
  // Of a Jinja template. An error quotes the place. REQUIRES: the process has one thread (HelperProcess).
  static Result<AnswerParser> open(std::string template_source);

  // Errors (kInput) say what is wrong with the conversation, its tools or the schema; others (kRuntime), why nothing
  // can be said now. Schemas that were refused lately are known.
  Result<AnswerFormat> format(const AnswerRequest& request) const;

  // Reads an answer, or with `partial` the beginning of one, whose last words are left out where they may become a
  // marker; nothing if it is none of the format. White space where reasoning ends and before the first call belongs to
  // nobody; other text is content as it stands. An error if reading it takes more than the bounds.
  Result<std::optional<AssistantMessage>> parse(const AnswerFormat& format, std::string_view text, bool partial) const;

  // GBNF of a JSON schema. Errors (kInput) name what of it is not supported.
  Result<std::string> grammar(const std::string& schema) const;

  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;
  ~AnswerParser();

 private:
  struct State;
  explicit AnswerParser(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice
