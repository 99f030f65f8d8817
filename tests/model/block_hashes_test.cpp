#include "model/block_hashes.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>

#include "model/file_identity.h"
#include "support/tiny_model.h"

namespace sluice {
namespace {

using namespace test;

Sha256 hash(const std::string& text) { return sha256(std::as_bytes(std::span(text))); }
void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST(BlockHashes, AreKeptWholeOrNotAtAll) {
  const std::string path = temp_path("known.blocks");
  BlockHashes known;
  known.set(7, hash("seven"));
  known.set(0, hash("nothing"));
  ASSERT_FALSE(known.save(path));
  const BlockHashes again = BlockHashes::load(path);
  EXPECT_EQ(again.size(), 2u);
  EXPECT_EQ(again.find(7), hash("seven"));
  EXPECT_EQ(again.find(1), std::nullopt);
  EXPECT_EQ(BlockHashes::load(path + "-nowhere").size(), 0u);
  for (const std::string& broken : {std::string("sluice blocks 1\n"), std::string(), std::string(200, 'x')}) {
    write(path, broken);
    EXPECT_EQ(BlockHashes::load(path).size(), 0u);
  }
}

TEST(BlockHashes, OfAFileAreThoseOfItsPieces) {
  const std::string path = temp_path("pieces.bin"), text = "aaaabbbbcc";
  write(path, text);
  const auto file = OpenFile::open(path).value();
  const std::array<uint32_t, 2> blocks{0, 2};
  for (int i = 0; i < 2; ++i) {  // computed, and remembered
    const auto hashes = hashes_of_blocks(file, 4, blocks);
    ASSERT_TRUE(hashes);
    EXPECT_EQ(*hashes, (std::vector{hash("aaaa"), hash("cc")}));
  }
  EXPECT_EQ(bytes_of_block(10, 4, 2), 2u);
  EXPECT_EQ(bytes_of_block(10, 4, 3), 0u);
  EXPECT_EQ(bytes_of_block(8, 4, 2), 0u);
  write(path, "aaaabbbbccc");
  EXPECT_FALSE(hashes_of_blocks(file, 4, blocks)) << "the file has changed";
}

}  // namespace
}  // namespace sluice
