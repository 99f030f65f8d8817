#include "serve/json_values.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace sluice {

using json = nlohmann::ordered_json;

ApiResult<double> read_number(const json& value, const std::string& param, double low, double high, bool above) {
  const double x = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (x >= low && x <= high && !(above && x == low)) return x;
  const std::string from = (above ? "above " : "from ") + json(low).dump();
  return bad_parameter(param, "must be a number " + from + " to " + json(high).dump());
}

ApiResult<int32_t> read_whole(const json& value, const std::string& param, int32_t low, int32_t high) {
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT32_MAX);
  if (fits && value.get<int64_t>() >= low && value.get<int64_t>() <= high) return value.get<int32_t>();
  return bad_parameter(param, "must be a whole number from " + std::to_string(low) + " to " + std::to_string(high));
}

ApiResult<bool> read_flag(const json& value, const std::string& param) {
  if (value.is_boolean()) return value.get<bool>();
  return bad_parameter(param, "must be true or false");
}

ApiResult<std::vector<Token>> read_tokens(const json& ids, const std::string& param, int32_t n_vocab) {
  if (!ids.is_array()) return bad_parameter(param, "must be a list of token ids");
  std::vector<Token> tokens;
  for (const json& id : ids) {
    SLUICE_API_TRY(const Token token, read_whole(id, param, 0, n_vocab - 1));
    tokens.push_back(token);
  }
  return tokens;
}

ApiResult<std::string> read_member(const json& object, const std::string& name, const std::string& param) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_string()) return bad_parameter(param + "." + name, "must be a text");
  return at->get<std::string>();
}

ApiStatus check_members(const json& object, const std::string& param, const std::vector<std::string_view>& known) {
  for (const auto& [name, value] : object.items())
    if (!value.is_null() && std::ranges::count(known, name) == 0)
      return bad_parameter(param + "." + name, "not supported: leave it out");
  return {};
}

bool is_given(const json& body, const char* param) {
  const auto at = body.find(param);
  return at != body.end() && !at->is_null();
}

ApiStatus read_idle(const std::string& name, const json& value, const std::vector<IdleParameter>& all) {
  if (value.is_null()) return {};
  const auto idle = std::ranges::find(all, name, &IdleParameter::name);
  if (idle != all.end()) {
    if (std::count(idle->values.begin(), idle->values.end(), value) > 0) return {};
    if (!idle->advice.empty()) return bad_parameter(name, idle->advice);
    return bad_parameter(name, "not supported: leave it out" +
                                   (idle->values.empty() ? std::string() : ", or give " + idle->values[0].dump()));
  }
  const auto is_member = [&](const IdleParameter& one) { return one.name.starts_with(name + "."); };
  if (std::ranges::none_of(all, is_member)) return bad_parameter(name, "there is no such parameter here");
  if (!value.is_object()) return bad_parameter(name, "must be an object");
  std::map<std::string, const json*> members;  // the same one is named in whichever order they come
  for (const auto& [member, one] : value.items()) members.emplace(member, &one);
  for (const auto& [member, one] : members) SLUICE_API_TRY_STATUS(read_idle(name + "." + member, *one, all));
  return {};
}

BodyReader::BodyReader(const json& body, std::vector<std::string> known) : body_(body), known_(std::move(known)) {}

ApiStatus BodyReader::check() const {
  for (const auto& [name, value] : body_.items())
    if (std::ranges::count(known_, name) == 0) return bad_parameter(name, "there is no such parameter here");
  return {};
}

ApiResult<std::string> BodyReader::text(const std::string& param) const {
  const auto at = body_.find(param);
  if (at == body_.end() || !at->is_string()) return bad_parameter(param, "must be a text");
  return at->get<std::string>();
}

ApiResult<bool> BodyReader::flag(const std::string& param, bool otherwise) const {
  const auto at = body_.find(param);
  return at == body_.end() || at->is_null() ? otherwise : read_flag(*at, param);
}

}  // namespace sluice
