// All methods, by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "method/method.h"

namespace sluice {

// A row of the table of methods.
struct MethodEntry {
  const char* name;  // on the command line
  MethodTraits (*traits)(const MethodOptions& options);
  std::unique_ptr<Method> (*make)(const MethodOptions& options);
};
// Null if there is none of this name.
const MethodEntry* find_method(std::string_view name);

// A method that serves a request.
struct ActiveMethod {
  std::string_view name;
  MethodTraits traits;
  std::unique_ptr<Method> policy;
};
// Errors name --method and list what there is.
Result<ActiveMethod> make_method(const std::string& name, const MethodOptions& options);

std::vector<std::string> method_names();
// Those that guess, and of them those that take a draft model, since they need no head.
std::vector<std::string> speculating_methods();
std::vector<std::string> drafting_methods();
// The method that a kind of head was made for. REQUIRES: not a draft head, which serves all that take draft models.
std::string method_of(HeadKind kind);

}  // namespace sluice
