// Every message comes back as it went; bytes that are no message are refused, whatever they say.
#include "wire/codec.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/counted_memory.h"
#include "support/random_message.h"

namespace sluice {
namespace {

using namespace test;
using Bytes = std::vector<std::byte>;

constexpr size_t kKinds = std::variant_size_v<Message>;

// Decodes them, and checks that this took no more memory than there are bytes, times a constant.
Result<Message> decode_sparingly(const Bytes& bytes) {
  constexpr size_t kTimes = 32, kForTheError = 1024;
  const size_t before = allocated_bytes();
  auto message = decode(bytes);
  EXPECT_LE(allocated_bytes() - before, kTimes * bytes.size() + kForTheError) << "of " << bytes.size() << " bytes";
  return message;
}

void set_u32(Bytes& bytes, size_t at, uint32_t x) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(x >> (8 * i));
}
void set_length(Bytes& bytes) { set_u32(bytes, 8, static_cast<uint32_t>(bytes.size() - kHeaderBytes)); }

TEST(Codec, EveryMessageComesBackAsItWent) {
  RandomMessages random(1);
  for (int i = 0; i < 300; ++i)
    for (size_t kind = 0; kind < kKinds; ++kind) {
      const Message message = random.of_kind(kind);
      const Bytes bytes = encode(message);
      const auto back = decode_sparingly(bytes);
      ASSERT_TRUE(back) << back.error().message;
      EXPECT_EQ(back->index(), kind);
      EXPECT_TRUE(Flat(*back) == Flat(message)) << "kind " << kind;
      EXPECT_EQ(encode(*back), bytes);
    }
}

// docs/formats.md, "Messages".
TEST(Codec, TheLayoutIsAsItStandsInTheDocumentation) {
  Batch batch{.id = BatchId(0x0102030405060708), .hidden = {1.0f, -0.0f}, .halves = {{0x3c00}, {0x8001}}};
  batch.updates = {Commit{SequenceId(3), Cell(4)}};
  batch.rows = {{.sequence = SequenceId(3),
                 .token = 258,
                 .position = 5,
                 .cell = Cell(6),
                 .kind = Row::Kind::kNode,
                 .index = 9,
                 .tapped = false}};
  const std::vector<uint8_t> expected = {
      'S', 'L', 'W', 'M', 16,   0,    0,    0,    89, 0, 0, 0,  // a message of version 16 and kind 0, 89 bytes long
      8,   7,   6,   5,   4,    3,    2,    1,                  // id
      1,   0,   0,   0,   2,    3,    0,    0,    0,  4, 0, 0,    0,           // one update: a commit
      1,   0,   0,   0,   3,    0,    0,    0,    2,  1, 0, 0,    5, 0, 0, 0,  // one row: sequence, token, position,
      6,   0,   0,   0,   0xff, 0xff, 0xff, 0xff, 1,  9, 0, 0,                 // cell, parent, kind, index, tapped
      0,   0,   0,   0,   0,    0,    0,    0,    0,  0, 0, 0,                 // no draws, features, refreshes
      2,   0,   0,   0,   0,    0,    0x80, 0x3f, 0,  0, 0, 0x80,              // the hidden states
      2,   0,   0,   0,   0,    0x3c, 1,    0x80,                              // the same as f16
      0,   0,   0,   0,   0,    0,    0,    0,                                 // sent no time after the one before
  };
  const Bytes bytes = encode(batch);
  std::vector<uint8_t> numbers;
  for (const std::byte b : bytes) numbers.push_back(static_cast<uint8_t>(b));
  EXPECT_EQ(numbers, expected);
}

TEST(Codec, FloatsKeepTheirBits) {
  Taps taps;
  for (const uint32_t bits : {0x7fc00001u, 0xff800000u, 0x80000000u, 0x00000001u})
    taps.states.push_back(std::bit_cast<float>(bits));
  const auto back = decode(encode(taps));
  ASSERT_TRUE(back);
  for (size_t i = 0; i < taps.states.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(std::get<Taps>(*back).states[i]), std::bit_cast<uint32_t>(taps.states[i]));
}

TEST(Codec, WhatIsCutShortOrGoesOnIsRefused) {
  RandomMessages random(2);
  for (int i = 0; i < 20; ++i)
    for (size_t kind = 0; kind < kKinds; ++kind) {
      const Bytes bytes = encode(random.of_kind(kind));
      for (size_t n = 0; n < bytes.size(); ++n) {
        Bytes cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
        EXPECT_FALSE(decode_sparingly(cut));
        if (n < kHeaderBytes) continue;
        set_length(cut);  // the header agrees
        EXPECT_FALSE(decode_sparingly(cut));
      }
      Bytes longer = bytes;
      longer.push_back(std::byte(0));
      EXPECT_FALSE(decode_sparingly(longer));
      set_length(longer);
      EXPECT_FALSE(decode_sparingly(longer));
    }
}

TEST(Codec, FlippedBitsAreRefusedOrMeanSomethingElse) {
  RandomMessages random(3);
  for (int i = 0; i < 3000; ++i) {
    Bytes bytes = encode(random.of_kind(random.below(kKinds)));
    for (uint64_t flips = 1 + random.below(4); flips > 0; --flips)
      bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1u << random.below(8));
    const auto message = decode_sparingly(bytes);
    EXPECT_TRUE(!message || encode(*message) == bytes);
  }
}

TEST(Codec, RandomContentsAreRefusedOrMeanThemselves) {
  RandomMessages random(4);
  for (int i = 0; i < 3000; ++i) {
    Bytes bytes = encode(random.of_kind(random.below(kKinds)));
    bytes.resize(kHeaderBytes + random.below(200));
    for (size_t at = kHeaderBytes; at < bytes.size(); ++at)
      bytes[at] = static_cast<std::byte>(random.below(3) == 0 ? random.below(256) : 0);
    set_length(bytes);
    const auto message = decode_sparingly(bytes);
    EXPECT_TRUE(!message || encode(*message) == bytes);
  }
}

// The counts stand where the layout test shows them: after the header and the id.
TEST(Codec, AListThatSaysItIsLongerThanTheMessageTakesNoMemory) {
  for (const uint32_t count : {7u, 1000u, 0x10000000u, std::numeric_limits<uint32_t>::max()}) {
    Bytes bytes = encode(Batch{.id = BatchId(1)});
    set_u32(bytes, kHeaderBytes + 8, count);
    const auto message = decode_sparingly(bytes);
    ASSERT_FALSE(message);
    EXPECT_EQ(message.error().kind, ErrorKind::kInput);
    EXPECT_NE(message.error().message.find("longer than the message"), std::string::npos) << message.error().message;
  }
}

// That a sequence is closed takes 5 bytes, and an update has room for how one is sampled.
TEST(Codec, ManySmallElementsThatTakeMuchMemoryAreRefused) {
  constexpr std::ptrdiff_t kFirst = kHeaderBytes + 12, kClose = 5;
  constexpr uint32_t kMany = 4'000'000;
  const Bytes one = encode(Batch{.id = BatchId(1), .updates = {Close{SequenceId(3)}}});
  Bytes bytes(one.begin(), one.begin() + kFirst);
  for (uint32_t i = 0; i < kMany; ++i) bytes.insert(bytes.end(), one.begin() + kFirst, one.begin() + kFirst + kClose);
  bytes.insert(bytes.end(), one.begin() + kFirst + kClose, one.end());
  set_u32(bytes, kHeaderBytes + 8, kMany);
  set_length(bytes);
  const auto message = decode_sparingly(bytes);
  ASSERT_FALSE(message);
  EXPECT_NE(message.error().message.find("too much memory"), std::string::npos) << message.error().message;
}

TEST(Codec, TheHeaderSaysHowLongTheMessageIs) {
  const Bytes bytes = encode(TapsArrived{BatchId(1), StageId(2)});
  const auto header = std::span(bytes).first<kHeaderBytes>();
  EXPECT_EQ(message_bytes(header).value(), bytes.size());

  const auto error_with = [&](size_t at, uint32_t x) {
    Bytes other = bytes;
    set_u32(other, at, x);
    const auto from_header = message_bytes(std::span(other).first<kHeaderBytes>());
    const auto from_all = decode(other);
    EXPECT_FALSE(from_all);
    if (from_header) return std::string();
    EXPECT_EQ(from_header.error().message, from_all.error().message);
    return from_header.error().message;
  };
  EXPECT_EQ(error_with(0, 0x46554747), "this is no message of Sluice");  // GGUF
  EXPECT_EQ(error_with(4, 1),
            "a message of version 1; this program speaks version 16: run the same release everywhere");
  EXPECT_EQ(error_with(4, kWireVersion | 77u << 16), "a message of unknown kind 77");
  EXPECT_EQ(error_with(8, 0xffffffff), "a message of 4294967295 bytes; there may be 268435444");
}

}  // namespace
}  // namespace sluice
