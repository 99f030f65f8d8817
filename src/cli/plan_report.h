// What `sluice plan` says.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/layer_range.h"
#include "session/draft_place.h"
#include "session/forecast.h"

namespace sluice {

struct Plan {
  std::string model;                // its name
  std::string given_model;          // what -m said; empty: the default model
  std::vector<std::string> drafts;  // what --draft is to say
  std::vector<std::string> hosts;   // of the stages, HOST:PORT; empty: they are in this process
  std::vector<std::string> left_out;
  std::string given_hosts;       // what --hosts said, if none is left out
  std::string secret;            // what --secret said
  std::string asked_profile;     // what --profile said
  std::string profile;           // where the prices stand: a name or a file
  std::vector<LayerRange> cuts;  // of the stages
  double step = 0, alone = 0;    // seconds of the slowest stage, and of a token through all of them
  double draft_pass = 0;         // seconds; 0: there is no draft model
  DraftPlace draft_on;           // where it runs
  bool draft_is_known = false;   // because the file of hosts says so
  struct Promise {
    DraftPlace draft_on;
    double tokens_per_second = 0;
  };
  std::vector<Promise> places;  // where it might: all that were tried
  Forecasts forecasts;

  // First layers of the second, third, … stage.
  std::vector<int32_t> inner_cuts() const;
  // The line to type.
  std::string command() const;
};

nlohmann::json to_json(const Plan& plan);
std::string to_text(const Plan& plan);

}  // namespace sluice
