// What a server has done, and what it is at.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"

namespace sluice {

// How many values lay below each of some bounds.
struct Histogram {
  std::vector<double> bounds;  // they rise
  // [bounds + 1], the last of them beyond all bounds: each of the values up to that bound and above the one before.
  std::vector<uint64_t> counts = std::vector<uint64_t>(bounds.size() + 1);
  double sum = 0;  // of the values

  void saw(double value, uint64_t times = 1);
};

// Of requests, added up.
struct Counts {
  int64_t prompt_tokens = 0, reused_tokens = 0;  // of those that have begun
  int64_t answer_tokens = 0;
  int64_t verifications = 0, drafted = 0, accepted = 0, flushes = 0, replays = 0;

  void add(const Request& request);
};

// A request that runs.
struct Slot {
  RequestId request;
  std::string method, source;
  SamplingParams sampling;
  size_t prompt_tokens = 0, answer_tokens = 0, max_tokens = 0;
};

// A state of the server's engine and all that was counted until then. Seconds are those of the engine's clock.
struct EngineReport {
  double now = 0;
  size_t running = 0, waiting = 0;
  std::string trouble;  // why nothing can be answered now; empty: it can
  std::vector<Slot> slots;

  // Of the target: how many there are, those of running requests (one that several share counts for each, up to all),
  // and those that are held for anybody, ended requests included.
  size_t cells = 0, cells_running = 0, cells_held = 0;

  Counts counts;
  std::array<uint64_t, std::size(kFinishes)> ended{};  // by Finish
  uint64_t refused = 0;                                // because too many waited
  Histogram first_token{{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,   0.75,
                         1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80,  160,  640.0, 2560.0}};
  // From token to token: of those that come together each counts with its share.
  Histogram next_token{{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                        0.4,   0.5,    0.75,  1.0,  2.5,   5.0,  7.5,   10,  20,   40,  80}};
  Histogram whole{{0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50, 60, 120, 240, 480}};

  std::vector<double> stage_busy;  // seconds, of the target's stages
  int64_t batches = 0;             // of the target
  double coordinator_seconds = 0;  // of its processor
  size_t resident_bytes = 0;       // of the engine's process, if it has one of its own
  uint64_t restarts = 0;           // of such a process
};

}  // namespace sluice
