// JSON from who may be anybody.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "serve/api_error.h"

namespace sluice {

// The object that a body holds, members in the order in which they came; of two of one name the second. Errors (400):
// it is no JSON, nests too deeply, has too many members, is not UTF-8, or no object.
ApiResult<nlohmann::ordered_json> parse_body(std::string_view body);

}  // namespace sluice
