// Walks the tree of a template and writes its output.
#pragma once

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/ast.h"

namespace sluice::jinja {

// The template's text with these variables. `now` is what strftime_now formats, in local time. Throws TemplateError,
// with the line.
std::string render(const Body& body, std::vector<std::pair<std::string, Value>> variables, std::time_t now);

}  // namespace sluice::jinja
