#include "model/file_identity.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "model/model_file.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace sluice {
namespace {

using namespace test;
namespace fs = std::filesystem;

Sha256 hash(const std::string& text) { return sha256(std::as_bytes(std::span(text))); }

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Files that were written just now are not kept, since they may be written again at the same time of the clock.
void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(1100)); }

// With a cache folder of its own.
class FileIdentity : public ::testing::Test {
 protected:
  FileIdentity() {
    fs::remove_all(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  static std::string of(const std::string& path) { return file_identity(OpenFile::open(path).value()).value().hex(); }
  std::string cache() const { return folder_ + "/sluice/identities"; }
  // Puts other bytes where the lines of the cache are, as if it had been written so.
  void rewrite_cache(const std::string& lines) const { write(cache(), lines + hash(lines).hex() + "\n"); }
  std::string lines() const {
    const std::string text = read(cache());
    return text.substr(0, text.size() - 65);
  }

  const std::string folder_ = temp_path("identity-cache"), file_ = temp_path("identity.bin");
};

TEST_F(FileIdentity, IsSha256) {
  EXPECT_EQ(hash("abc").hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-2, B.1
  const std::string large(3'000'001, 'a');
  write(file_, large);
  EXPECT_EQ(of(file_), hash(large).hex());
  write(file_, "");
  EXPECT_EQ(of(file_), hash("").hex());
}

TEST_F(FileIdentity, IsKeptForAFileThatStaysAsItIs) {
  write(file_, "one");
  EXPECT_EQ(of(file_), hash("one").hex());
  EXPECT_FALSE(fs::exists(cache())) << "it may be written again within a tick of the clock";
  settle();
  EXPECT_EQ(of(file_), hash("one").hex());
  std::string kept = lines();
  const size_t at = kept.find(hash("one").hex());
  ASSERT_NE(at, std::string::npos) << kept;
  EXPECT_NE(kept.find(fs::canonical(file_).string()), std::string::npos);

  rewrite_cache(kept.replace(at, 64, hash("told").hex()));
  EXPECT_EQ(of(file_), hash("told").hex()) << "it is not read again";
  const auto time = fs::last_write_time(file_);
  write(file_, "two");
  fs::last_write_time(file_, time);
  EXPECT_EQ(of(file_), hash("two").hex()) << "also if its time was put back";
}

TEST_F(FileIdentity, OfADamagedCacheNothingIsTaken) {
  write(file_, "one");
  settle();
  const std::string right = hash("one").hex();
  EXPECT_EQ(of(file_), right);
  const std::string whole = read(cache());
  for (size_t at = 0; at < whole.size(); at += at < 20 ? 1 : 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write(cache(), damaged);
    ASSERT_EQ(of(file_), right) << "byte " << at;
    write(cache(), whole.substr(0, at));
    ASSERT_EQ(of(file_), right) << "cut to " << at;
  }
  EXPECT_EQ(read(cache()), whole) << "and it is written anew";
  rewrite_cache("sluice identities 1\nnonsense\n" + right + " 1 2\n\n \n" + right + "\n");
  EXPECT_EQ(of(file_), right);
}

TEST_F(FileIdentity, ForgetsFilesThatHaveGoneOrChanged) {
  const std::string gone = temp_path("identity-gone"), changed = temp_path("identity-changed");
  for (const auto& path : {file_, gone, changed}) write(path, path);
  settle();
  EXPECT_EQ(of(gone), hash(gone).hex());
  EXPECT_EQ(of(changed), hash(changed).hex());
  EXPECT_NE(lines().find(gone), std::string::npos);
  fs::remove(gone);
  write(changed, "x");
  EXPECT_EQ(of(file_), hash(file_).hex());
  EXPECT_EQ(lines().find(gone), std::string::npos);
  EXPECT_EQ(lines().find(changed), std::string::npos);
  EXPECT_NE(lines().find(file_), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ + "/sluice"), {}), 1) << "nothing unfinished is left";
}

TEST_F(FileIdentity, NeedsNoCache) {
  write(folder_, "a file where the folder should be");
  write(file_, "one");
  settle();
  EXPECT_EQ(of(file_), hash("one").hex());
}

TEST_F(FileIdentity, OfAFileThatHasChangedSinceItWasOpenedIsAnError) {
  write(file_, "one");
  const OpenFile file = OpenFile::open(file_).value();
  write(file_, "other");
  const auto identity = file_identity(file);
  ASSERT_FALSE(identity);
  EXPECT_EQ(identity.error().kind, ErrorKind::kRuntime);
  EXPECT_NE(identity.error().message.find(file_), std::string::npos);
}

TEST_F(FileIdentity, OfAModelIsThatOfAllItsFilesInOrder) {
  const auto whole = write_tiny_model({}, temp_path("identity-whole.gguf"));
  EXPECT_EQ(ModelFile::open(whole).value().identity().value(), hash(read(whole)));
  const auto first = write_tiny_model({.shards = 2}, temp_path("identity-parts.gguf"));
  std::string second = first;
  second.replace(second.find("00001-of"), 5, "00002");
  const Sha256 parts[] = {hash(read(first)), hash(read(second))};
  const ModelFile model = ModelFile::open(second).value();
  EXPECT_EQ(model.identity().value(), identity_of_all(parts));
  EXPECT_NE(identity_of_all(parts), identity_of_all(std::span(parts).first(1)));
  const ModelFile target = ModelFile::open(whole).value();
  const auto head = tiny_head(target, {.kind = "draft"}).write(temp_path("identity-head.gguf"));
  const Sha256 both[] = {hash(read(head)), hash(read(whole))};
  EXPECT_EQ(ModelFile::open_draft(head, target).value().identity().value(), identity_of_all(both));
}

}  // namespace
}  // namespace sluice
