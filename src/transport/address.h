// Where a process can be reached.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

inline constexpr std::string_view kRank = "rank ";  // how the text of a rank's address begins

struct HostAddress {
  static constexpr uint16_t kPort = 7001;  // unless another is named

  std::string host;  // a name, or an address
  uint16_t port = kPort;
  std::string name = {};   // for people; may be empty
  int32_t rank = kNoRank;  // of an MPI job; then host and port are of no meaning
  bool relay = false;      // only the coordinator reaches it, by whose process it reaches other stages

  static constexpr int32_t kNoRank = -1;
  static HostAddress of_rank(int32_t rank) { return {.host = {}, .port = 0, .rank = rank}; }
  bool is_rank() const { return rank != kNoRank; }

  std::string text() const;        // HOST:PORT, [ADDRESS]:PORT for IPv6, or "rank N"
  std::string for_people() const;  // the same, with the name before it if there is one
  bool operator==(const HostAddress&) const = default;

  // HOST, HOST:PORT, [ADDRESS]:PORT, or "rank N" as text() has it. Errors (kInput) say what would be right.
  static Result<HostAddress> parse(const std::string& text);
};

// Several, with commas; ranks are not among them.
Result<std::vector<HostAddress>> parse_hosts(const std::string& text);

}  // namespace sluice
