// JSON to values; the other way is to_json() in operations.h.
#pragma once

#include <nlohmann/json.hpp>

#include "model/jinja/value.h"

namespace sluice::jinja {

// Integers beyond 64 bits become floats. Throws TemplateError when the JSON nests too deeply.
Value from_json(const nlohmann::ordered_json& json, int depth = 0);

}  // namespace sluice::jinja
