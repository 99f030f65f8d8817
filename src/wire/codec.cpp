#include "wire/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "wire/fields.h"

namespace sluice {

namespace {

struct Header {
  std::array<uint8_t, 4> magic = {'S', 'L', 'W', 'M'};
  uint16_t version = kWireVersion;
  uint16_t kind = 0;    // its place in Message
  uint32_t length = 0;  // of the contents
};

using Count = uint32_t;       // before the elements of a list
using Alternative = uint8_t;  // before what a variant holds

bool is_known(Rule rule) { return rule <= Rule::kTopP; }
bool is_known(Row::Kind kind) { return kind <= Row::Kind::kNode; }
bool is_known(KvType type) { return type <= KvType::kF32; }
bool is_known(StageRecipe::Kind kind) { return kind <= StageRecipe::Kind::kStored; }
bool is_known(Hello::Role role) { return role <= Hello::Role::kTaps; }
bool is_known(ErrorKind kind) {
  return kind == ErrorKind::kRuntime || kind == ErrorKind::kInput || kind == ErrorKind::kInterrupted;
}

template <class T, template <class...> class Template>
constexpr bool is_a = false;
template <class... Arguments, template <class...> class Template>
constexpr bool is_a<Template<Arguments...>, Template> = true;
template <class T>
constexpr bool is_id = false;
template <class Tag, class Number>
constexpr bool is_id<Id<Tag, Number>> = true;
template <class T>
constexpr bool is_array = false;
template <class T, size_t n>
constexpr bool is_array<std::array<T, n>> = true;

template <class T>
constexpr bool is_scalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;
// Every value of its bits is one: lists of them are copied as they are.
template <class T>
constexpr bool is_number = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) || std::is_same_v<T, Half>;
template <class T>
constexpr bool is_list = is_a<T, std::vector> || std::is_same_v<T, std::string>;

// Goes through all of x, the same way in every direction: `way` takes scalars, the lengths of lists, blocks of numbers
// and which alternative a variant holds.
template <class Way, class X>
void travel(Way& way, X& x) {
  using T = std::remove_const_t<X>;
  if constexpr (is_scalar<T>) {
    way.scalar(x);
  } else if constexpr (is_id<T>) {
    way.scalar(x.value);
  } else if constexpr (is_list<T>) {
    way.length(x);
    if constexpr (is_number<typename T::value_type>)
      way.block(x.data(), x.size());
    else
      for (auto& element : x) travel(way, element);
  } else if constexpr (is_array<T>) {
    way.block(x.data(), x.size());
  } else if constexpr (is_a<T, std::pair>) {
    travel(way, x.first);
    travel(way, x.second);
  } else if constexpr (is_a<T, std::variant>) {
    way.alternative(x);
    std::visit([&way](auto& held) { travel(way, held); }, x);
  } else {
    for_each_field(x, [&way](auto& field) { travel(way, field); });
  }
}

// How many bytes there will be.
class Counter {
 public:
  template <class T>
  void scalar(const T&) {
    n_ += sizeof(T);
  }
  template <class List>
  void length(const List&) {
    n_ += sizeof(Count);
  }
  template <class T>
  void block(const T*, size_t n) {
    n_ += n * sizeof(T);
  }
  template <class Variant>
  void alternative(const Variant&) {
    n_ += sizeof(Alternative);
  }
  size_t n() const { return n_; }

 private:
  size_t n_ = 0;
};

// n values of `size` bytes, between this machine's order of bytes and the wire's.
void copy_little_endian(void* to, const void* from, size_t n, size_t size) {
  if (n == 0) return;
  std::memcpy(to, from, n * size);
  if constexpr (std::endian::native == std::endian::big)
    for (auto* at = static_cast<std::byte*>(to); n > 0; --n, at += size) std::reverse(at, at + size);
}

// Writes to where a Counter has found room.
class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}
  template <class T>
  void scalar(const T& x) {
    block(&x, 1);
  }
  template <class List>
  void length(const List& list) {
    scalar(static_cast<Count>(list.size()));
  }
  template <class T>
  void block(const T* numbers, size_t n) {
    copy_little_endian(to_, numbers, n, sizeof(T));
    to_ += n * sizeof(T);
  }
  template <class Variant>
  void alternative(const Variant& x) {
    scalar(static_cast<Alternative>(x.index()));
  }

 private:
  std::byte* to_;
};

// The fewest bytes that a T takes.
template <class T>
size_t least_bytes() {
  static const size_t least = [] {
    if constexpr (is_a<T, std::variant>) {
      return []<class... Held>(std::type_identity<std::variant<Held...>>) {
        return sizeof(Alternative) + std::min({least_bytes<Held>()...});
      }(std::type_identity<T>());
    } else {
      Counter counter;
      const T empty{};
      travel(counter, empty);
      return counter.n();
    }
  }();
  return least;
}

// Once something is wrong it reads zeros and empty lists, so that what calls it comes to its end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> from) : from_(from) {}

  template <class T>
  void scalar(T& x) {
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t bit = 0;
      scalar(bit);
      if (bit > 1) fail("a truth value is neither 0 nor 1");
      x = bit == 1;
    } else {
      block(&x, 1);
      if constexpr (std::is_enum_v<T>)
        if (!is_known(x)) fail("an unknown rule or kind");
    }
  }
  template <class List>
  void length(List& list) {
    Count n = 0;
    scalar(n);
    if (n > from_.size() / least_bytes<typename List::value_type>()) {
      fail("a list is longer than the message");
      n = 0;
    }
    list.resize(n);
  }
  template <class T>
  void block(T* numbers, size_t n) {
    if (n > from_.size() / sizeof(T)) return fail("it ends too early");
    copy_little_endian(numbers, from_.data(), n, sizeof(T));
    from_ = from_.subspan(n * sizeof(T));
  }
  template <class... Held>
  void alternative(std::variant<Held...>& x) {
    Alternative held = 0;
    scalar(held);
    if (held >= sizeof...(Held)) return fail("an unknown kind of update");
    choose(x, held);
  }
  // Makes x hold its alternative of that number, empty.
  template <class... Held>
  static void choose(std::variant<Held...>& x, size_t held) {
    [&]<size_t... i>(std::index_sequence<i...>) {
      (static_cast<void>(held == i && (x.template emplace<i>(), true)), ...);
    }
    (std::index_sequence_for<Held...>());
  }

  // What is wrong, if anything is; all must have been read.
  const char* complaint() {
    if (!from_.empty()) fail("it goes on behind its end");
    return complaint_;
  }

 private:
  void fail(const char* why) {
    if (complaint_ == nullptr) complaint_ = why;
    from_ = {};
  }

  std::span<const std::byte> from_;
  const char* complaint_ = nullptr;
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
