#include "method/method.h"

#include <utility>

#include "method/autoregressive.h"
#include "method/eagle.h"
#include "method/pipespec.h"
#include "method/ppsd.h"
#include "method/sd.h"
#include "method/spd.h"
#include "method/specinfer.h"
#include "method/specpipe.h"
#include "method/ssd.h"
#include "method/surge.h"

namespace sluice {

void Method::drafted(Speculation& speculation, size_t, NodeId node, std::vector<Candidate> candidates,
                     std::shared_ptr<const Draws> draws) {
  speculation.tree.set_candidates(node, std::move(candidates), std::move(draws));
}

Result<std::unique_ptr<Method>> make_method(const std::string& name, const MethodOptions& options) {
  if (name == "ar") return std::make_unique<Autoregressive>();
  if (name == "sd") return std::make_unique<SpeculativeDecoding>(options);
  if (name == "specinfer") return std::make_unique<SpecInfer>(options);
  if (name == "pipespec") return std::make_unique<PipeSpec>(options);
  if (name == "ssd") return std::make_unique<Ssd>(options);
  if (name == "specpipe") return std::make_unique<SpecPipe>(options);
  if (name == "eagle3") return std::make_unique<Eagle>(HeadKind::kEagle3, options);
  if (name == "p-eagle") return std::make_unique<Eagle>(HeadKind::kPEagle, options);
  if (name == "ppsd") return std::make_unique<Ppsd>(options);
  if (name == "spd") return std::make_unique<SpeculativePipelineDecoding>(options);
  if (name == "surge") return std::make_unique<Surge>(options);
  std::string names;
  for (const auto& known : method_names()) names += (names.empty() ? "" : ", ") + known;
  return input_error("--method " + name + " is not available; there are: auto, " + names);
}

std::string method_of(HeadKind kind) {
  for (const std::string& name : method_names())
    if (make_method(name, {}).value()->head() == kind) return name;
  SLUICE_CHECK(false, "a method for every kind of head");
}

std::vector<std::string> method_names() {
  return {"ar", "sd", "specinfer", "eagle3", "p-eagle", "ppsd", "spd", "specpipe", "surge", "pipespec", "ssd"};
}

}  // namespace sluice
