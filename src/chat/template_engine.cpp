#include "chat/template_engine.h"

#include <algorithm>
#include <new>

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

std::string_view before(std::string_view text, std::string_view mark) { return text.substr(0, text.find(mark)); }
std::string_view after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  return at == text.npos ? std::string_view() : text.substr(at + mark.size());
}

}  // namespace

// One line of the engine's several. While it renders: "… at line 3, column 5 in source:\n<text around>\n  ^\nError:
// <message>"; of its parser: "parser: Parser Error: <message>\n...<text around>...\n  ^".
std::string one_line(std::string_view what) {
  const std::string place(before(after(what, " at line "), ","));
  std::string message(after(what, "\nError: "));
  if (message.ends_with("std::bad_alloc")) throw std::bad_alloc();  // the engine made a message of it
  if (message.empty()) {
    message = before(what, "\n");
    if (const auto near = before(after(what, "\n..."), "\n"); !near.empty())
      message += " near \"" + std::string(near.substr(0, near.rfind("..."))) + "\"";
  }
  for (const std::string_view prefix : {"Jinja Exception: ", "lexer: ", "parser: ", "Parser Error: "})
    if (message.starts_with(prefix)) message.erase(0, prefix.size());
  std::replace_if(
      message.begin(), message.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return (place.empty() ? "" : "line " + place + ": ") + message.substr(0, 1000);
}

namespace {

constexpr int kDeepest = 100;  // levels of JSON: tools nest their schemas

bool nests_within(const Json& json, int levels) {
  if (!json.is_structured()) return true;
  return levels > 0 && std::ranges::all_of(json, [&](const Json& item) { return nests_within(item, levels - 1); });
}

}  // namespace

Status check(const ChatTemplateInput& input) {
  const auto bad = [](const std::string& what) { return input_error("chat template: " + what); };
  const auto deep = [](const Json& json) { return !nests_within(json, kDeepest); };
  for (const ChatMessage& message : input.messages) {
    if (!message.extra.is_null() && !message.extra.is_object())
      return bad("a message's extra members must be a JSON object");
    if (deep(message.extra)) return bad("a message nests too deeply");
  }
  if (!input.extra.is_null() && !input.extra.is_object()) return bad("the extra variables must be a JSON object");
  if (deep(input.extra)) return bad("the extra variables nest too deeply");
  if (deep(input.tools)) return bad("the tools nest too deeply");
  return {};
}

Json messages_of(const ChatTemplateInput& input) {
  Json messages = Json::array();
  for (const ChatMessage& message : input.messages) {
    messages.push_back({{"role", message.role}, {"content", message.content}});
    if (!message.extra.is_null()) messages.back().update(message.extra);
  }
  return messages;
}

}  // namespace sluice
