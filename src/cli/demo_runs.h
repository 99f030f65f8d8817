// The runs that `sluice demo` shows: one prompt by plain pipelining and by surge, recorded by bench/demo.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice {

// A recorded run.
struct DemoRun {
  nlohmann::ordered_json data;  // as a timeline's page holds it: times in nanoseconds
  std::string title;
  double tokens_per_second = 0;  // simulated

  // The time from the first token on in so many columns, kStepColumns to a pass of a stage: a line that counts the
  // tokens of a pass, and one for each stage.
  static constexpr size_t kStepColumns = 3;
  std::string drawing(size_t columns) const;
};

struct Demo {
  std::string target, draft, prompt, profile;
  DemoRun plain, surge;

  double ratio() const { return surge.tokens_per_second / plain.tokens_per_second; }
  // Both timelines, one below the other, on one clock.
  std::string page() const;
};

// What is compiled in.
Demo stored_demo();

}  // namespace sluice
