// Messages as bytes, for links between processes: docs/formats.md, "Messages".
//
// A message has one encoding: what decodes, encodes to the same bytes again. Bytes from a stranger do no harm: decoding
// reads nothing beyond them and takes no more memory than a fixed multiple of their number. It knows nothing of the
// model, so whether cells, rows and widths make sense is for who receives the message to say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "wire/message.h"

namespace sluice {

inline constexpr uint16_t kWireVersion = 16;  // of the layout of every message
inline constexpr size_t kHeaderBytes = 12;
inline constexpr size_t kMostMessageBytes = size_t{1} << 28;  // header included

// Header and contents. REQUIRES: they come to kMostMessageBytes at most.
std::vector<std::byte> encode(const Message& message);
// The same into `bytes`, in place of what is there.
void encode(const Message& message, std::vector<std::byte>& bytes);

// The message that these bytes are, from the first to the last. Errors (kInput) say what is wrong with them.
Result<Message> decode(std::span<const std::byte> bytes);

// For who reads from a stream: how long the message is, header included, that begins with this header. Errors as of
// decode().
Result<size_t> message_bytes(std::span<const std::byte, kHeaderBytes> header);

}  // namespace sluice
