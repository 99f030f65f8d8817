// Where what drafts runs: draft models, and a trained head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/model_file.h"
#include "transport/address.h"

namespace sluice {

struct DraftPlace {
  enum class Kind : uint8_t {
    kHere,   // beside the coordinator: in its process, on a device of their own
    kStage,  // on the device of a stage, whose time they share; if stages are on hosts, on that stage's host
    kHost,   // on this host
  };
  Kind kind = Kind::kHere;
  int32_t stage = 0;
  HostAddress host = {};

  // What --draft-on takes: "here", the number of a stage, or HOST:PORT.
  std::string text() const;
  // "here", "with stage 1", "on a:7001".
  std::string for_people() const;
  // Errors (kInput) say what would be right.
  static Result<DraftPlace> parse(const std::string& text);
  // Whether it is one of those of a pipeline. Errors (kInput) name --draft-on.
  Status check(bool is_draft, size_t n_stages) const;
  bool operator==(const DraftPlace&) const = default;
};

// Whether a draft model can be on another host. One that is a head of the target can't, since it needs its target's
// weights beside it. Errors (kInput) name it.
Status check_moves(const ModelFile& draft);

}  // namespace sluice
