#include "serve/json_body.h"

#include <algorithm>

#include "serve/policy.h"

namespace sluice {

namespace {

// Levels of arrays and objects; also of what is no JSON, since parsers count on the stack what they meet.
int depth(std::string_view text) {
  int level = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++level);
    } else if (c == ']' || c == '}') {
      --level;
    }
  }
  return deepest;
}

tl::unexpected<ApiError> bad_body(const std::string& message) {
  return tl::unexpected<ApiError>(
      {.status = 400, .message = "the body " + message, .param = "", .code = "invalid_json"});
}

}  // namespace

ApiResult<nlohmann::json> parse_body(std::string_view body) {
  if (body.empty()) return bad_body("is empty: it must be a JSON object");
  if (depth(body) > policy::kDeepestBody)
    return bad_body("nests too deeply: there may be " + std::to_string(policy::kDeepestBody) + " levels at most");
  try {
    auto json = nlohmann::json::parse(body);
    if (!json.is_object()) return bad_body(std::string("must be a JSON object, not ") + json.type_name());
    return json;
  } catch (const nlohmann::json::parse_error& error) {
    return bad_body("is no JSON, see byte " + std::to_string(error.byte));
  } catch (const nlohmann::json::exception&) {
    return bad_body("holds a number that is out of range");
  }
}

}  // namespace sluice
