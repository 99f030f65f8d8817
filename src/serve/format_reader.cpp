#include "serve/format_reader.h"

#include <utility>

#include "serve/json_values.h"
#include "wire/sampling.h"

namespace sluice {

namespace {

using json = nlohmann::ordered_json;

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

json type_of(const json& format) { return format.is_object() ? format.value("type", json()) : json(); }

tl::unexpected<ApiError> unknown_type(const std::string& param) {
  return bad_parameter(param, R"(must be {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", …})");
}

}  // namespace

ApiStatus read_json_schema(const json& value, const std::string& param, Asked& asked) {
  if (!value.is_object() && !value.is_boolean()) return bad_parameter(param, "must be a JSON schema");
  return take(GrammarKind::kJsonSchema, value.dump(), param, asked);
}

ApiStatus read_response_format(const json& value, const std::string& param, Asked& asked) {
  const json type = type_of(value);
  if (type == "text") return {};
  if (type == "json_object")
    return value.contains("schema") ? read_json_schema(value["schema"], param + ".schema", asked)
                                    : take(GrammarKind::kJson, "", param, asked);
  if (type != "json_schema") return unknown_type(param);
  const json named = value.value("json_schema", json());
  if (!named.is_object() || !named.contains("schema"))
    return bad_parameter(param + ".json_schema", R"(must be {"name": …, "schema": {…}})");
  return read_json_schema(named["schema"], param + ".json_schema.schema", asked);
}

ApiStatus read_text_format(const json& value, const std::string& param, Asked& asked) {
  const json type = type_of(value);
  if (type != "text" && type != "json_object" && type != "json_schema") return unknown_type(param);
  SLUICE_API_TRY_STATUS(check_members(value, param, {"type", "name", "schema", "strict", "description"}));
  if (type == "text") return {};
  if (type == "json_object") return take(GrammarKind::kJson, "", param, asked);
  SLUICE_API_TRY_STATUS(read_member(value, "name", param));
  if (!is_given(value, "schema")) return bad_parameter(param + ".schema", "is missing");
  return read_json_schema(value["schema"], param + ".schema", asked);
}

ApiStatus read_grammar(const json& value, const std::string& param, Asked& asked) {
  return take_text(GrammarKind::kGbnf, value, param, asked);
}

ApiStatus read_regex(const json& value, const std::string& param, Asked& asked) {
  return take_text(GrammarKind::kRegex, value, param, asked);
}

}  // namespace sluice
