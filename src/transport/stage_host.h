// A process that holds stages for coordinators elsewhere: what `sluice stage` runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "transport/address.h"
#include "transport/secret.h"
#include "transport/weight_store.h"

namespace sluice {

class MpiJob;

struct StageHostOptions {
  HostAddress listen{"127.0.0.1", HostAddress::kPort};
  std::optional<Secret> secret;  // without one: this machine only
  std::shared_ptr<MpiJob> job;   // whose ranks come, instead of who comes to `listen`; null: none
  std::string models;            // a folder of GGUF files beside the paths that coordinators name; empty: none
  WeightCache cache;             // of what coordinators send; no folder: nothing is fetched
  int64_t memory = 0;            // bytes for all stages; 0: what this machine has
  int32_t threads = 0;           // of each stage; 0: as coordinators ask, or all
  std::string device = {};       // of each stage; empty: as coordinators ask
  bool spare = false;            // it holds stages only in place of others that are lost
  // Bytes at the most of the states that each stage keeps of what it has sent on, so that it need not compute them
  // again when another one is lost; 0: none, and everything is.
  int64_t journal = int64_t{512} << 20;
  double patience = 5.0;                                                    // seconds that a silent peer is given
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line when a stage comes or goes
};

class StageHost {
 public:
  // Errors (kRuntime) name --listen.
  static Result<std::unique_ptr<StageHost>> open(const StageHostOptions& options);
  StageHost(const StageHost&) = delete;
  StageHost& operator=(const StageHost&) = delete;
  // Tells the coordinators, and hands back what it holds.
  ~StageHost();

  // Takes no further stages, and waits until those that it holds are idle (no batch for a second) or gone, `seconds` at
  // the most. Who ends it then breaks into no answer.
  void drain(double seconds);

  const HostAddress& address() const;  // with the port that was chosen
  int64_t memory() const;              // bytes that stages may have
  size_t stages() const;               // that are held now

 private:
  class Impl;
  explicit StageHost(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
