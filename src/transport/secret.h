// What the processes of a pipeline share, so that nobody else joins.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace sluice {

struct Secret {
  std::array<uint8_t, 32> bytes{};

  // A file of 64 hexadecimal digits that only its owner may read, or that systemd gives a service
  // (CREDENTIALS_DIRECTORY). Errors (kInput) name the file: it is not there, holds less, or others may read it.
  static Result<Secret> load(const std::string& path);
};

// Draws one and writes it to a new file, which only its owner may read. Errors (kRuntime) name the file; one that is
// there already stays as it is.
Status make_secret(const std::string& path);

}  // namespace sluice
