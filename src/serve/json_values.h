// Values of a request's JSON, each with the range in which it must be. Errors (400) name the parameter.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/ids.h"
#include "serve/api_error.h"

namespace sluice {

// above: `low` itself is not in the range.
ApiResult<double> read_number(const nlohmann::json& value, const std::string& param, double low, double high,
                              bool above = false);
ApiResult<int32_t> read_whole(const nlohmann::json& value, const std::string& param, int32_t low, int32_t high);
ApiResult<bool> read_flag(const nlohmann::json& value, const std::string& param);
// Of a list of token ids.
ApiResult<std::vector<Token>> read_tokens(const nlohmann::json& ids, const std::string& param, int32_t n_vocab);

// Of a body that may have no other parameters than those that are named. A parameter that is null is not given.
class BodyReader {
 public:
  BodyReader(const nlohmann::json& body, std::vector<std::string> known);
  ApiStatus check() const;
  ApiResult<std::string> text(const std::string& param) const;
  ApiResult<bool> flag(const std::string& param, bool otherwise) const;

 private:
  const nlohmann::json& body_;
  std::vector<std::string> known_;
};

}  // namespace sluice
