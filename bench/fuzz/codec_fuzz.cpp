// libFuzzer target: bytes of any kind are refused, or are the one encoding of a message; never a crash.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "wire/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto message = sluice::decode(bytes);
  if (!message) return 0;
  const auto again = sluice::encode(*message);
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
  return 0;
}
