#include "serve/format_reader.h"

#include <utility>

#include "wire/sampling.h"

namespace sluice {

namespace {

using nlohmann::json;

ApiStatus take(GrammarKind kind, std::string text, const std::string& param, Asked& asked) {
  if (asked.form) return bad_parameter(param, asked.form->param + " says in which form the answer is: leave one out");
  if (text.size() > kLongestGrammar)
    return bad_parameter(
        param, "has " + std::to_string(text.size()) + " bytes, of " + std::to_string(kLongestGrammar) + " at most");
  asked.form = {.source = {kind, std::move(text)}, .param = param};
  return {};
}

ApiStatus take_text(GrammarKind kind, const json& value, const std::string& param, Asked& asked) {
  if (!value.is_string()) return bad_parameter(param, "must be a text");
  if (value == "") return {};
  return take(kind, value.get<std::string>(), param, asked);
}

}  // namespace

ApiStatus read_json_schema(const json& value, const std::string& param, Asked& asked) {
  if (!value.is_object() && !value.is_boolean()) return bad_parameter(param, "must be a JSON schema");
  return take(GrammarKind::kJsonSchema, value.dump(), param, asked);
}

ApiStatus read_response_format(const json& value, const std::string& param, Asked& asked) {
  const json type = value.is_object() ? value.value("type", json()) : json();
  if (type == "text") return {};
  if (type == "json_object")
    return value.contains("schema") ? read_json_schema(value["schema"], param + ".schema", asked)
                                    : take(GrammarKind::kJson, "", param, asked);
  if (type != "json_schema")
    return bad_parameter(param, R"(must be {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", …})");
  const json named = value.value("json_schema", json());
  if (!named.is_object() || !named.contains("schema"))
    return bad_parameter(param + ".json_schema", R"(must be {"name": …, "schema": {…}})");
  return read_json_schema(named["schema"], param + ".json_schema.schema", asked);
}

ApiStatus read_grammar(const json& value, const std::string& param, Asked& asked) {
  return take_text(GrammarKind::kGbnf, value, param, asked);
}

ApiStatus read_regex(const json& value, const std::string& param, Asked& asked) {
  return take_text(GrammarKind::kRegex, value, param, asked);
}

}  // namespace sluice
