#include "serve/engine_wire.h"

#include <iterator>

#include "wire/known.h"
#include "wire/travel.h"

namespace sluice {

inline bool is_known(Finish finish) { return static_cast<size_t>(finish) < std::size(kFinishes); }
inline bool is_known(Fate fate) { return static_cast<size_t>(fate) < std::size(kFates); }
inline bool is_known(SourceKind kind) { return static_cast<size_t>(kind) < std::size(kSources); }
inline bool is_known(Fallback fallback) { return static_cast<size_t>(fallback) < std::size(kFallbacks); }

namespace {

template <class Message>
std::vector<std::byte> encoded(const Message& message) {
  wire::Counter counter;
  travel(counter, message);
  std::vector<std::byte> bytes(counter.n());
  wire::Writer writer(bytes.data());
  travel(writer, message);
  return bytes;
}

template <class Message>
Result<Message> decoded(std::span<const std::byte> bytes) {
  Message message;
  wire::Reader reader(bytes);
  travel(reader, message);
  if (const char* complaint = reader.complaint())
    return input_error(std::string("a message between server and engine: ") + complaint);
  return message;
}

}  // namespace

std::vector<std::byte> bytes_of(const ToEngine& message) { return encoded(message); }
std::vector<std::byte> bytes_of(const FromEngine& message) { return encoded(message); }
Result<ToEngine> to_engine(std::span<const std::byte> bytes) { return decoded<ToEngine>(bytes); }
Result<FromEngine> from_engine(std::span<const std::byte> bytes) { return decoded<FromEngine>(bytes); }

}  // namespace sluice
