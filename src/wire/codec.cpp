#include "wire/codec.h"

#include <algorithm>
#include <array>
#include <string>

#include "wire/known.h"
#include "wire/travel.h"

namespace sluice {

namespace {

using wire::Counter, wire::Reader, wire::Writer;

struct Header {
  std::array<uint8_t, 4> magic = {'S', 'L', 'W', 'M'};
  uint16_t version = kWireVersion;
  uint16_t kind = 0;    // its place in Message
  uint32_t length = 0;  // of the contents
};

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  std::vector<std::byte> bytes;
  encode(message, bytes);
  return bytes;
}

void encode(const Message& message, std::vector<std::byte>& bytes) {
  const auto encode_kind = [&](const auto& contents) {
    Counter counter;
    travel(counter, contents);
    SLUICE_CHECK(counter.n() <= kMostMessageBytes - kHeaderBytes, "a message is longer than any may be");
    bytes.resize(kHeaderBytes + counter.n());
    Writer writer(bytes.data());
    const Header header{.kind = static_cast<uint16_t>(message.index()), .length = static_cast<uint32_t>(counter.n())};
    travel(writer, header);
    travel(writer, contents);
  };
  std::visit(encode_kind, message);
}

namespace {

Result<Header> header_of(std::span<const std::byte> bytes) {
  Header header;
  const Header ours;
  Reader reader(bytes.first(std::min(bytes.size(), kHeaderBytes)));
  travel(reader, header);
  if (reader.complaint() != nullptr || header.magic != ours.magic) return input_error("this is no message of Sluice");
  if (header.version != ours.version)
    return input_error("a message of version " + std::to_string(header.version) + "; this program speaks version " +
                       std::to_string(ours.version) + ": run the same release everywhere");
  if (header.kind >= std::variant_size_v<Message>)
    return input_error("a message of unknown kind " + std::to_string(header.kind));
  if (header.length > kMostMessageBytes - kHeaderBytes)
    return input_error("a message of " + std::to_string(header.length) + " bytes; there may be " +
                       std::to_string(kMostMessageBytes - kHeaderBytes));
  return header;
}

}  // namespace

Result<size_t> message_bytes(std::span<const std::byte, kHeaderBytes> bytes) {
  SLUICE_TRY(const Header header, header_of(bytes));
  return kHeaderBytes + header.length;
}

Result<Message> decode(std::span<const std::byte> bytes) {
  SLUICE_TRY(const Header header, header_of(bytes));
  const auto contents = bytes.subspan(kHeaderBytes);
  if (contents.size() != header.length)
    return input_error("a message of " + std::to_string(header.length) + " bytes came as " +
                       std::to_string(contents.size()));
  Message message;
  Reader reader(contents);
  Reader::choose(message, header.kind);
  std::visit([&reader](auto& kind) { travel(reader, kind); }, message);
  if (const char* complaint = reader.complaint())
    return input_error("message of kind " + std::to_string(header.kind) + ": " + complaint);
  return message;
}

}  // namespace sluice
