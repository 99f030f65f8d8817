// No file, however malformed, crashes the program: each is refused with one line or opened, and what was opened can be
// mapped and tokenized with.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "base/random.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "support/memory_file.h"
#include "support/tiny_model.h"

namespace sluice {
namespace {

using Bytes = std::vector<std::byte>;

Bytes small_model(const std::string& tokenizer, const std::string& architecture = "llama") {
  test::TinyModelSpec spec;
  spec.architecture = architecture;
  spec.tokenizer = tokenizer;
  spec.n_layers = 1;
  spec.d_model = spec.d_ff = 32;
  spec.n_heads = spec.n_kv_heads = 2;
  spec.extra_tokens = 8;
  spec.tied = true;
  if (architecture != "llama") spec = test::of_family(spec, architecture);
  std::ifstream file(test::write_tiny_model(spec, test::temp_path("small.gguf")), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// Opens the bytes as a model and uses it. True if they were accepted.
bool survives(const test::MemoryFile& file) {
  const auto model = ModelFile::open(file.path());
  if (!model) {
    EXPECT_FALSE(model.error().message.empty());
    return false;
  }
  model->metadata();
  const auto weights = model->map({0, model->hparams().n_layers}, true, true);
  EXPECT_TRUE(weights);
  if (const auto tokenizer = Tokenizer::load(*model)) {
    const auto tokens = tokenizer->encode("Why is <s> the sky\n blue? 42 \xF0\x9F\xA6\x89", true, true);
    if (tokens) tokenizer->decode(*tokens, true);
  }
  return true;
}

size_t header_size(const Bytes& bytes) { return gguf::Header::parse(bytes).value().data_offset(); }

// The n-th of a fixed sequence of numbers below `limit`.
uint32_t pick(uint32_t n, uint32_t which, uint32_t limit) {
  return philox4x32({n, which, 0, static_cast<uint32_t>(Purpose::kTest)}, {2026, 11})[0] % limit;
}

TEST(HostileFile, CutAnywhere) {
  const Bytes whole = small_model("gpt2");
  test::MemoryFile file;
  const auto cut = [&](size_t size) {
    file.set(std::span(whole).first(size));
    EXPECT_FALSE(survives(file)) << "cut at " << size;
  };
  const size_t header = header_size(whole);
  for (size_t size = 0; size < header; size += 64) cut(size);
  for (uint32_t i = 0; i < 200; ++i) cut(pick(i, 0, static_cast<uint32_t>(whole.size() - 128)));
  file.set(whole);
  EXPECT_TRUE(survives(file));
}

// Libraries read texts up to a zero byte: two tokens, or two keys, that differ only behind one are the same to them.
TEST(HostileFile, ZeroBytesInTexts) {
  const Bytes whole = small_model("gpt2");
  const std::string text(reinterpret_cast<const char*>(whole.data()), whole.size());
  for (const auto& [zeroed, said] : std::initializer_list<std::pair<std::vector<std::string>, std::string>>{
           {{"<|im_start|>", "<|im_end|>"}, "a token with a zero byte"}, {{"general.name"}, "a zero byte in it"}}) {
    Bytes bytes = whole;
    for (const std::string& place : zeroed) bytes[text.find(place) + 4] = std::byte{0};
    test::MemoryFile file;
    file.set(bytes);
    const auto model = ModelFile::open(file.path());
    ASSERT_FALSE(model);
    EXPECT_NE(model.error().message.find(said), std::string::npos) << model.error().message;
  }
}

// Flips bits or overwrites words in the header; many such files are still models.
void mutate(const Bytes& whole, uint32_t rounds) {
  const auto header = static_cast<uint32_t>(header_size(whole));
  test::MemoryFile file;
  uint32_t accepted = 0;
  for (uint32_t i = 0; i < rounds; ++i) {
    Bytes bytes = whole;
    for (uint32_t j = 0; j <= pick(i, 1, 3); ++j) {
      const uint32_t at = pick(i, 2 + j, header - 8);
      constexpr uint64_t kWords[] = {0, 1, 9, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x100000000, 1 << 20};
      const uint32_t kind = pick(i, 10 + j, 3);
      if (kind == 0) bytes[at] ^= static_cast<std::byte>(1u << pick(i, 20 + j, 8));
      if (kind == 1) bytes[at] = static_cast<std::byte>(pick(i, 20 + j, 256));
      if (kind == 2) std::memcpy(&bytes[at], &kWords[pick(i, 20 + j, std::size(kWords))], pick(i, 30 + j, 2) ? 8 : 4);
    }
    file.set(bytes);
    accepted += survives(file);
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_LT(accepted, rounds);
}

TEST(HostileFile, MutatedBytePairVocabularies) { mutate(small_model("gpt2"), 2000); }
TEST(HostileFile, MutatedSentencePieceVocabularies) { mutate(small_model("llama"), 2000); }
TEST(HostileFile, MutatedQwen) { mutate(small_model("gpt2", "qwen2"), 500); }
TEST(HostileFile, MutatedExperts) {
  mutate(small_model("gpt2", "qwen2moe"), 500);
  mutate(small_model("gpt2", "glm4moe"), 500);
  mutate(small_model("gpt2", "deepseek2"), 500);
  mutate(small_model("gpt2", "gpt-oss"), 500);
  mutate(small_model("gpt2", "qwen35moe"), 500);
}
TEST(HostileFile, MutatedHybrids) {
  mutate(small_model("gpt2", "qwen3next"), 500);
  mutate(small_model("gpt2", "qwen35"), 500);
}
TEST(HostileFile, MutatedGemma) {
  mutate(small_model("llama", "gemma2"), 500);
  mutate(small_model("llama", "gemma3"), 500);
}

TEST(HostileFile, MutatedGemma4) { mutate(small_model("gemma4", "gemma4"), 2000); }

// Every 8-byte word of the counts at the beginning, and every length, made gigantic in turn.
TEST(HostileFile, GiganticCounts) {
  const Bytes whole = small_model("llama");
  test::MemoryFile file;
  const size_t header = header_size(whole);
  for (size_t at = 4; at + 8 <= std::min<size_t>(header, 2500); ++at) {
    Bytes bytes = whole;
    const uint64_t huge = uint64_t{1} << (at % 3 == 0 ? 62 : at % 3 == 1 ? 40 : 31);
    std::memcpy(&bytes[at], &huge, sizeof(huge));
    file.set(bytes);
    survives(file);
  }
}

// The header's values each given every type there is: what is read must be asked for its type first.
TEST(HostileFile, WrongTypes) {
  const Bytes whole = small_model("gpt2");
  const auto header = gguf::Header::parse(whole).value();
  test::MemoryFile file;
  for (const auto& [key, value] : header.entries()) {
    for (uint32_t type = 0; type < 14; ++type) {
      Bytes bytes = whole;
      const size_t type_at = value.offset - (value.is_array ? 16 : 4);
      std::memcpy(&bytes[type_at], &type, sizeof(type));
      file.set(bytes);
      survives(file);
      if (!value.is_array) continue;
      bytes = whole;
      std::memcpy(&bytes[value.offset - 12], &type, sizeof(type));
      file.set(bytes);
      survives(file);
    }
  }
}

}  // namespace
}  // namespace sluice
