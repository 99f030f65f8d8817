#include "transport/chunks.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice {
namespace {

Bytes frame_of(size_t n, uint8_t begin) {
  Bytes bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(begin + i * 7);
  return bytes;
}

// What comes out of a reader, in order.
struct Heard {
  std::vector<std::pair<Bytes, Priority>> frames;
  std::vector<uint64_t> beats;
  ChunkReader::Sink sink() {
    return {.frame = [this](Bytes frame, Priority priority) { frames.emplace_back(std::move(frame), priority); },
            .beat = [this](uint64_t progress) { beats.push_back(progress); }};
  }
};

Bytes all_of(ChunkWriter& writer) {
  Bytes all, some;
  while (writer.fill(some)) all.insert(all.end(), some.begin(), some.end());
  return all;
}

TEST(Chunks, FramesComeBackWholeHoweverTheyAreCut) {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, size_t{1} << 20}) {
    ChunkWriter writer;
    for (const size_t n : {size_t{1}, kChunkBytes - 1, kChunkBytes, kChunkBytes + 1, 3 * kChunkBytes})
      writer.add(frame_of(n, 1), Priority::kBulk);
    writer.beat(99);
    const Bytes all = all_of(writer);
    EXPECT_EQ(writer.waiting(Priority::kBulk), 0u);
    Heard heard;
    const auto sink = heard.sink();
    ChunkReader reader(4 * kChunkBytes);
    for (size_t at = 0; at < all.size(); at += piece)
      ASSERT_TRUE(reader.take(std::span(all).subspan(at, std::min(piece, all.size() - at)), sink));
    EXPECT_FALSE(reader.in_the_middle());
    EXPECT_EQ(heard.beats, std::vector<uint64_t>{99});
    ASSERT_EQ(heard.frames.size(), 5u);
    EXPECT_EQ(heard.frames[4].first, frame_of(3 * kChunkBytes, 1));
  }
}

TEST(Chunks, AnUrgentFrameDoesNotWaitBehindALargeOne) {
  ChunkWriter writer;
  writer.add(frame_of(100 * kChunkBytes, 1), Priority::kBulk);
  Heard heard;
  const auto sink = heard.sink();
  ChunkReader reader(200 * kChunkBytes);
  Bytes some;
  ASSERT_TRUE(writer.fill(some));
  ASSERT_TRUE(reader.take(some, sink));
  writer.add(frame_of(40, 2), Priority::kUrgent);
  writer.beat(1);
  ASSERT_TRUE(writer.fill(some));
  ASSERT_TRUE(reader.take(some, sink));
  ASSERT_EQ(heard.frames.size(), 1u);
  EXPECT_EQ(heard.frames[0].first, frame_of(40, 2));
  EXPECT_EQ(heard.frames[0].second, Priority::kUrgent);
  EXPECT_EQ(heard.beats.size(), 1u);
  ASSERT_TRUE(reader.take(all_of(writer), sink));
  ASSERT_EQ(heard.frames.size(), 2u);
  EXPECT_EQ(heard.frames[1].first, frame_of(100 * kChunkBytes, 1));
}

TEST(Chunks, SmallFramesGoTogether) {
  ChunkWriter writer;
  for (int i = 0; i < 50; ++i) writer.add(frame_of(30, 3), Priority::kUrgent);
  Bytes some;
  ASSERT_TRUE(writer.fill(some));
  EXPECT_FALSE(writer.fill(some));
}

TEST(Chunks, AFrameBeyondWhatIsAllowedIsRefusedBeforeItHasCome) {
  ChunkWriter writer;
  writer.add(frame_of(5 * kChunkBytes, 1), Priority::kBulk);
  Heard heard;
  ChunkReader reader(2 * kChunkBytes);
  EXPECT_FALSE(reader.take(all_of(writer), heard.sink()));
  EXPECT_EQ(reader.taken(), 2 * kChunkBytes);
  EXPECT_TRUE(heard.frames.empty());
}

TEST(Chunks, AnotherProgramIsToldApart) {
  const auto said_to = [](const std::string& text) {
    ChunkReader reader(1024);
    Heard heard;
    const auto bytes = std::as_bytes(std::span(text));
    const Status status = reader.take(bytes, heard.sink());
    return status ? std::string() : status.error().message;
  };
  EXPECT_NE(said_to("HTTP/1.1 400 Bad Request").find("no sluice"), std::string::npos);
  EXPECT_NE(said_to("\x16\x03\x01\x02").find("--secret"), std::string::npos);
  EXPECT_NE(said_to("\x15\x03\x03\x02").find("--secret"), std::string::npos);
  EXPECT_EQ(said_to("S"), "");
}

// Whatever comes, nothing but an error follows, and no frame that is longer than what came.
TEST(Chunks, ArbitraryBytesDoNoHarm) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 3000; ++i) {
    ChunkWriter writer;
    for (int j = 0; j < 3; ++j) {
      writer.add(frame_of(1 + random() % 300, 1), random() % 2 ? Priority::kBulk : Priority::kUrgent);
      writer.beat(j);
    }
    Bytes bytes = all_of(writer);
    for (uint64_t n = random() % 4; n > 0; --n) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 2) bytes.resize(random() % bytes.size() + 1);
    Heard heard;
    const auto sink = heard.sink();
    ChunkReader reader(1000);
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min<size_t>(1 + random() % 50, bytes.size() - at);
      if (!reader.take(std::span(bytes).subspan(at, n), sink)) break;
      at += n;
    }
    size_t total = 0;
    for (const auto& [frame, priority] : heard.frames) total += frame.size();
    EXPECT_LE(total, bytes.size());
  }
}

}  // namespace
}  // namespace sluice
