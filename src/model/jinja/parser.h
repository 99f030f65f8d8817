// Tokens to a tree, by the grammar of Jinja 3.1 for the statements that chat templates use. Throws TemplateError.
#pragma once

#include <string_view>

#include "model/jinja/ast.h"

namespace sluice::jinja {

Body parse(std::string_view source);

}  // namespace sluice::jinja
