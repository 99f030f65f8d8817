#include "method/method.h"

#include "method/autoregressive.h"
#include "method/specpipe.h"

namespace sluice {

Result<std::unique_ptr<Method>> make_method(const std::string& name, const MethodOptions& options) {
  if (name == "ar") return std::make_unique<Autoregressive>();
  if (name == "specpipe") return std::make_unique<SpecPipe>(options);
  std::string names;
  for (const auto& known : method_names()) names += (names.empty() ? "" : ", ") + known;
  return input_error("--method " + name + " is not available; there are: auto, " + names);
}

std::vector<std::string> method_names() { return {"ar", "specpipe"}; }

}  // namespace sluice
