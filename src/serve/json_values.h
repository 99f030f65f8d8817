// Values of a request's JSON, each with the range in which it must be. Errors (400) name the parameter.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "serve/api_error.h"

namespace sluice {

// above: `low` itself is not in the range.
ApiResult<double> read_number(const nlohmann::ordered_json& value, const std::string& param, double low, double high,
                              bool above = false);
ApiResult<int32_t> read_whole(const nlohmann::ordered_json& value, const std::string& param, int32_t low, int32_t high);
ApiResult<bool> read_flag(const nlohmann::ordered_json& value, const std::string& param);
// Of a list of token ids.
ApiResult<std::vector<Token>> read_tokens(const nlohmann::ordered_json& ids, const std::string& param, int32_t n_vocab);

// A member that must be a text; the error names it as param.name.
ApiResult<std::string> read_member(const nlohmann::ordered_json& object, const std::string& name,
                                   const std::string& param);
// Whether an object has no other members than these; null ones are not given.
ApiStatus check_members(const nlohmann::ordered_json& object, const std::string& param,
                        const std::vector<std::string_view>& known);
// Whether a parameter is there and not null.
bool is_given(const nlohmann::ordered_json& body, const char* param);

// A parameter that is taken if it asks for nothing, by one of these values.
struct IdleParameter {
  std::string name;  // a.b is member b of parameter a
  std::vector<nlohmann::ordered_json> values = {};
  std::string advice = {};  // what to do instead; empty: to leave it out, or to give the first value
};
// Errors (400) also for names that are not among them. A parameter that is null is not given.
ApiStatus read_idle(const std::string& name, const nlohmann::ordered_json& value,
                    const std::vector<IdleParameter>& all);

// Of a body that may have no other parameters than those that are named. A parameter that is null is not given.
class BodyReader {
 public:
  BodyReader(const nlohmann::ordered_json& body, std::vector<std::string> known);
  ApiStatus check() const;
  ApiResult<std::string> text(const std::string& param) const;
  ApiResult<bool> flag(const std::string& param, bool otherwise) const;

 private:
  const nlohmann::ordered_json& body_;
  std::vector<std::string> known_;
};

}  // namespace sluice
