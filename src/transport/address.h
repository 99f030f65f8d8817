// Where a process listens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

struct HostAddress {
  static constexpr uint16_t kPort = 7001;  // unless another is named

  std::string host;  // a name, or an address
  uint16_t port = kPort;
  std::string name = {};  // for people; may be empty

  std::string text() const;        // HOST:PORT, [ADDRESS]:PORT for IPv6
  std::string for_people() const;  // the same, with the name before it if there is one
  bool operator==(const HostAddress&) const = default;

  // HOST, HOST:PORT or [ADDRESS]:PORT. Errors (kInput) say what would be right.
  static Result<HostAddress> parse(const std::string& text);
};

// Several, with commas.
Result<std::vector<HostAddress>> parse_hosts(const std::string& text);

}  // namespace sluice
