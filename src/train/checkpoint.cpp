#include "train/checkpoint.h"

#include <algorithm>

namespace sluice {

namespace {

constexpr const char* kState = "sluice-train.state";

void add(GgufWriter& file, const std::string& name, const torch::Tensor& values) {
  const auto shape = values.sizes();
  file.add(name, std::vector<int64_t>(shape.begin(), shape.end()), to_floats(values), GGML_TYPE_F32);
}

Status load(const GgufContents& contents, const std::string& name, torch::Tensor values, const std::string& path) {
  const auto it = contents.tensors.find(name);
  if (it == contents.tensors.end() || it->second.values.size() != static_cast<size_t>(values.numel()))
    return input_error(path + ": the tensor " + name +
                       " is missing or has another shape; it belongs to a run with other options");
  const torch::NoGradGuard frozen;
  values.copy_(to_tensor(it->second.values, values.sizes()));
  return {};
}

}  // namespace

Status save_checkpoint(const std::string& path, const Parameters& parameters, AdamW& optimizer,
                       const nlohmann::json& state) {
  GgufWriter file;
  file.set("general.architecture", "sluice-checkpoint");
  file.set(kState, state.dump());
  for (size_t i = 0; i < parameters.all().size(); ++i) {
    const auto& entry = parameters.all()[i];
    add(file, entry.name, entry.values);
    add(file, "m." + entry.name, optimizer.first_moments()[i]);
    add(file, "v." + entry.name, optimizer.second_moments()[i]);
  }
  return file.write(path);
}

namespace {

Result<nlohmann::json> state_of(const GgufContents& contents, const std::string& path) {
  const auto it = contents.strings.find(kState);
  auto state = it == contents.strings.end() ? nlohmann::json() : nlohmann::json::parse(it->second, nullptr, false);
  if (!state.is_object() || !state.contains("step") || !state.contains("examples"))
    return input_error(path + ": is no checkpoint of sluice train");
  return state;
}

}  // namespace

Result<size_t> examples_of_checkpoint(const std::string& path) {
  SLUICE_TRY(const auto contents, read_gguf(path));
  SLUICE_TRY(const auto state, state_of(contents, path));
  return state["examples"].get<size_t>();
}

Result<nlohmann::json> load_checkpoint(const std::string& path, Parameters& parameters, AdamW& optimizer) {
  SLUICE_TRY(const auto contents, read_gguf(path));
  SLUICE_TRY(const auto state, state_of(contents, path));
  for (size_t i = 0; i < parameters.all().size(); ++i) {
    const auto& entry = parameters.all()[i];
    SLUICE_TRY_STATUS(load(contents, entry.name, entry.values, path));
    SLUICE_TRY_STATUS(load(contents, "m." + entry.name, optimizer.first_moments()[i], path));
    SLUICE_TRY_STATUS(load(contents, "v." + entry.name, optimizer.second_moments()[i], path));
  }
  optimizer.set_steps(state["step"]);
  return state;
}

Status load_weights(const std::string& path, Parameters& parameters, const std::vector<Token>& before,
                    const std::vector<Token>& now) {
  SLUICE_TRY(const auto contents, read_gguf(path));
  const torch::NoGradGuard frozen;
  for (const auto& entry : parameters.all()) {
    if (entry.name != "output.weight" || before == now) {
      SLUICE_TRY_STATUS(load(contents, entry.name, entry.values, path));
      continue;
    }
    const int64_t d = entry.values.size(1);
    SLUICE_CHECK(!before.empty(), "a head of all tokens stays one");
    auto rows = torch::empty({std::ssize(before), d});
    SLUICE_TRY_STATUS(load(contents, entry.name, rows, path));
    for (int64_t i = 0; i < std::ssize(before); ++i) {
      const Token token = before[static_cast<size_t>(i)];
      const auto at = std::lower_bound(now.begin(), now.end(), token);
      if (now.empty())
        entry.values[token].copy_(rows[i]);
      else if (at != now.end() && *at == token)
        entry.values[at - now.begin()].copy_(rows[i]);
    }
  }
  return {};
}

}  // namespace sluice
