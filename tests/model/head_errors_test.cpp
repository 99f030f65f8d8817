// What a head's file must satisfy: each way to fall short gives an error that names it, and no file, however malformed,
// crashes the program.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include "base/random.h"
#include "model/gguf.h"
#include "model/head_file.h"
#include "support/memory_file.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace sluice {
namespace {

using test::GgufDraft;
using test::temp_path;
using test::tiny_head;
using test::TinyHeadSpec;

const ModelFile& target() {
  static const ModelFile model =
      ModelFile::open(test::write_tiny_model({.d_ff = 64, .extra_tokens = 8}, temp_path("target.gguf"))).value();
  return model;
}

std::string error_of(const std::string& path, const ModelFile& of = target()) {
  const auto head = HeadFile::open(path, of);
  if (head) return "(no error)";
  EXPECT_EQ(head.error().kind, ErrorKind::kInput);
  EXPECT_EQ(head.error().message.find('\n'), std::string::npos);
  EXPECT_EQ(head.error().message.find(path + ": "), 0u) << head.error().message;
  return head.error().message;
}

struct Case {
  const char* said;  // a part of the error
  std::function<void(GgufDraft&)> spoil;
};

void expect_errors(const TinyHeadSpec& spec, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    GgufDraft file = tiny_head(target(), spec);
    c.spoil(file);
    const std::string said = error_of(file.write(temp_path("broken.gguf")));
    EXPECT_NE(said.find(c.said), std::string::npos) << said << "\n  should say: " << c.said;
  }
}

Case sets(const char* said, const std::string& key, const auto& value) {
  return {said, [=](GgufDraft& f) { f.set("sluice-head." + key, value); }};
}
Case lacks(const char* said, const std::string& key) {
  return {said, [=](GgufDraft& f) { f.remove("sluice-head." + key); }};
}
Case lacks_tensor(const char* name) {
  return {"is missing", [=](GgufDraft& f) { f.remove_tensor(name); }};
}
Case has_tensor(const char* name, std::vector<int64_t> ne) {
  return {"is none that a head of kind", [=](GgufDraft& f) { f.add_floats(name, ne); }};
}
using Numbers = std::vector<int32_t>;

TEST(HeadErrors, OfWhatEveryFileSays) {
  expect_errors({.kind = "draft"},
                {lacks("version' is missing", "version"),
                 sets("is 2; 1 is needed", "version", uint32_t{2}),
                 sets("version' has type f32", "version", 1.0f),
                 lacks("kind' is missing", "kind"),
                 sets("'medusa'; spd, p-eagle", "kind", "medusa"),
                 lacks("target.name' is missing", "target.name"),
                 lacks("target.fingerprint' is missing", "target.fingerprint"),
                 sets("16 hexadecimal digits", "target.fingerprint", "0123"),
                 sets("16 hexadecimal digits", "target.fingerprint", "0123456789ABCDEF"),
                 sets("target.block_count' is 0", "target.block_count", uint32_t{0}),
                 sets("target.vocab_size' is 4294967295", "target.vocab_size", UINT32_MAX),
                 sets("embedding_length' is 128; it should be the target's, 64", "embedding_length", uint32_t{128}),
                 sets("block_count' is 0; it should be from 1", "block_count", uint32_t{0}),
                 sets("block_count' is 4000000000", "block_count", 4000000000u),
                 lacks("feed_forward_length' is missing", "feed_forward_length"),
                 sets("should be 64 x 80", "feed_forward_length", uint32_t{80}),
                 sets("should divide", "attention.head_count_kv", uint32_t{3}),
                 sets("an even number", "attention.key_length", uint32_t{15}),
                 sets("not a finite number", "attention.layer_norm_rms_epsilon", NAN),
                 sets("above 0 and below 1", "attention.layer_norm_rms_epsilon", 0.0f),
                 sets("should be above 1", "rope.freq_base", 1.0f),
                 sets("'sideways'; it should be adjacent or halves", "rope.pairing", "sideways"),
                 sets("scaled positions", "rope.scaling.factor", 2.0f),
                 sets("should be an array of strings", "borrows", Numbers{1}),
                 sets("'fc.weight', which no head borrows", "borrows", std::vector<std::string>{"fc.weight"}),
                 sets("which the file has itself", "borrows", std::vector<std::string>{"output.weight"}),
                 lacks("draft_vocab' is missing", "draft_vocab"),
                 sets("draft_vocab' is 100000", "draft_vocab", uint32_t{100000}),
                 sets("has 2 numbers; it should have 1", "draft.layers", Numbers{0, 1}),
                 sets("has the number 4; they should be from 0 to 3", "draft.layers", Numbers{4}),
                 lacks("draft.layers' is missing", "draft.layers")});
}

TEST(HeadErrors, OfTensors) {
  const auto retype = [](const char* name, ggml_type type) { return [=](GgufDraft& f) { f.entry(name).type = type; }; };
  expect_errors({.kind = "draft"}, {lacks_tensor("blk.0.attn_v.weight"),
                                    lacks_tensor("blk.0.ffn_norm.weight"),
                                    has_tensor("blk.1.ffn_norm.weight", {64}),
                                    has_tensor("blk.0.attn_q.bias", {64}),
                                    has_tensor("token_embd.weight", {64, 267}),
                                    has_tensor("rope_freqs.weight", {8}),
                                    {"has type i32; f32 is needed", retype("output_norm.weight", GGML_TYPE_I32)},
                                    {"which is no type for weights", retype("blk.0.ffn_up.weight", GGML_TYPE_I32)},
                                    {"'blk.0.attn_norm.weight' is 8 x 8",
                                     [](GgufDraft& f) {
                                       f.entry("blk.0.attn_norm.weight").ne = {8, 8};
                                     }},
                                    {"it should be 64", [](GgufDraft& f) {
                                       f.entry("output.weight").ne = {32, 534};
                                     }}});
  expect_errors({.kind = "p-eagle"}, {lacks_tensor("mask_hidden"),
                                      lacks_tensor("mask_embedding"),
                                      lacks_tensor("blk.0.attn_norm_2.weight"),
                                      lacks_tensor("fc.weight"),
                                      {"feature_norm.weight' is 64 x 3", [](GgufDraft& f) {
                                         f.entry("feature_norm.weight").ne = {64, 3};
                                       }}});
  expect_errors({.kind = "p-eagle", .masks_by_depth = true},
                {sets("'mask_hidden' is 64 x 5", "p-eagle.groups", uint32_t{4})});
  expect_errors({.kind = "eagle3", .feature_norm = false}, {has_tensor("enc.output_norm.weight", {192})});
}

TEST(HeadErrors, OfDraftVocabularies) {
  const auto with = [](const char* said, std::vector<int32_t> tokens) -> Case {
    return {said, [=](GgufDraft& f) {
              f.remove_tensor("d2t");
              f.add_integers("d2t", tokens);
            }};
  };
  const TinyHeadSpec spec{.kind = "exit", .vocabulary = {5, 6, 90}};
  expect_errors(spec, {with("row 1", {5, 5, 90}),
                       with("row 2", {5, 6, 1}),
                       with("row 0", {-1, 6, 90}),
                       with("row 2", {5, 6, 267}),
                       with("should be 3 numbers of type i32", {5, 6}),
                       {"should be 3 numbers of type i32",
                        [](GgufDraft& f) {
                          f.remove_tensor("d2t");
                          f.add_integers("d2t", std::vector<int64_t>{5, 6, 90});
                        }},
                       lacks_tensor("d2t"),
                       lacks_tensor("output.weight"),
                       sets("should be 2 numbers", "draft_vocab", uint32_t{2}),
                       sets("draft_vocab is 0", "draft_vocab", uint32_t{0})});
  expect_errors({.kind = "eagle3", .vocabulary = {5, 6, 90}},
                {with("should be 3 numbers of type i64", {5, 6, 90}),
                 {"row 1",
                  [](GgufDraft& f) {
                    f.remove_tensor("d2t");
                    f.add_integers("d2t", std::vector<int64_t>{5, int64_t{1} << 33, 90});
                  }},
                 {"has 300 rows", [](GgufDraft& f) {
                    f.remove_tensor("d2t");
                    f.add_integers("d2t", std::vector<int64_t>(300));
                  }}});
}

TEST(HeadErrors, OfSpd) {
  expect_errors({.kind = "spd"}, {sets("spd.stages' is 0", "spd.stages", uint32_t{0}),
                                  sets("spd.stages' is 5; it should be from 1 to 4", "spd.stages", uint32_t{5}),
                                  sets("has 3 numbers; it should have 4", "spd.stages", uint32_t{3}),
                                  sets("should rise from 0 to the target's 4 layers", "spd.cuts", Numbers{0, 2, 3}),
                                  sets("should rise from 0", "spd.cuts", Numbers{1, 2, 4}),
                                  sets("should rise from 0", "spd.cuts", Numbers{0, 4, 4}),
                                  sets("the number 5", "spd.cuts", Numbers{0, 2, 5}),
                                  sets("should be an array of i32", "spd.cuts", uint32_t{2}),
                                  sets("adds up to 8; spd.taps has 7", "spd.taps_per_depth", Numbers{2, 3, 3}),
                                  sets("adds up to 2147483654", "spd.taps_per_depth", Numbers{INT32_MAX, 3, 4}),
                                  sets("the number 0; they should be from 1", "spd.taps_per_depth", Numbers{0, 3, 4}),
                                  sets("the number -1", "spd.taps", Numbers{0, 0, -1, 2, 0, 2, 4}),
                                  sets("the number 5", "spd.taps", Numbers{0, 0, 1, 2, 0, 2, 5}),
                                  sets("at depth 1 a layer after 2", "spd.taps", Numbers{0, 0, 1, 3, 0, 2, 4}),
                                  sets("at depth 0 a layer after 0", "spd.taps", Numbers{1, 0, 1, 2, 0, 2, 4}),
                                  sets("should be 128 x 64", "spd.taps_per_depth", Numbers{1, 2, 4}),
                                  sets("should be single or full", "spd.attention", "some"),
                                  sets("should be input or output", "spd.timing", "late"),
                                  sets("should be a bool", "spd.feature_norm", uint32_t{1}),
                                  lacks("spd.shared_fc' is missing", "spd.shared_fc"),
                                  sets("'fc.2.weight' is none", "spd.shared_fc", true),
                                  sets("'fc.0.weight' is none", "spd.timing", "output"),
                                  lacks_tensor("fc.1.weight")});
  expect_errors({.kind = "spd", .shared_fc = true},
                {sets("should be the same from depth 1 on", "spd.taps_per_depth", Numbers{1, 2, 4})});
}

TEST(HeadErrors, OfTheOtherKinds) {
  expect_errors({.kind = "exit"}, {sets("exit.layer' is 5; it should be from 1 to 4", "exit.layer", uint32_t{5}),
                                   lacks("exit.layer' is missing", "exit.layer")});
  expect_errors({.kind = "p-eagle"}, {sets("p-eagle.groups' is 0", "p-eagle.groups", uint32_t{0}),
                                      sets("has 2 numbers", "p-eagle.taps", Numbers{1, 2}),
                                      sets("the number 5", "p-eagle.taps", Numbers{1, 2, 5})});
  const auto eagle3 = [](const char* said, const char* key, auto value) -> Case {
    return {said, [=](GgufDraft& f) { f.set(std::string("eagle3.") + key, value); }};
  };
  expect_errors({.kind = "eagle3"}, {eagle3("should be from 1 to 1", "block_count", uint32_t{2}),
                                     eagle3("target_hidden_size' is 32, but", "target_hidden_size", uint32_t{32}),
                                     eagle3("has 1 numbers; it should have 3", "target_layers", Numbers{1}),
                                     eagle3("the number 5", "target_layers", Numbers{1, 2, 5}),
                                     eagle3("norm_before_fc' should be a bool", "norm_before_fc", uint32_t{1}),
                                     eagle3("'enc.output_norm.weight' is none", "norm_before_fc", false)});
  expect_errors({.kind = "eagle3", .signed_by_us = false},
                {{"tokenizer.ggml.tokens", [](GgufDraft& f) { f.remove("tokenizer.ggml.tokens"); }}});
}

// Of the target's state they would know nothing: the token embedding is known before any stage has begun.
TEST(HeadErrors, OfHeadsThatReadNoState) {
  expect_errors({.kind = "exit"}, {sets("exit.layer' is 0; it should be from 1", "exit.layer", uint32_t{0})});
  expect_errors({.kind = "p-eagle"}, {sets("reads the token embedding alone", "p-eagle.taps", Numbers{0, 0, 0})});
  expect_errors({.kind = "eagle3"}, {{"reads the token embedding alone", [](GgufDraft& f) {
                                        f.set("eagle3.target_layers", Numbers{0, 0, 0});
                                      }}});
  expect_errors({.kind = "spd"}, {sets("reads the token embedding alone", "spd.taps", Numbers(7, 0))});
}

TEST(HeadErrors, AHeadOfAnotherModelSaysOfWhich) {
  const auto other = [](const test::TinyModelSpec& spec) {
    return ModelFile::open(test::write_tiny_model(spec, temp_path("other.gguf"))).value();
  };
  const std::string path = tiny_head(target(), {.kind = "spd"}).write(temp_path("head.gguf"));
  for (const auto& [spec, words] : std::initializer_list<std::pair<test::TinyModelSpec, std::vector<std::string>>>{
           {{.d_ff = 64, .extra_tokens = 8, .seed = 2},
            {"is a head of tiny-llama (4 layers of 64, 267 tokens, fingerprint"}},
           {{.architecture = "qwen3", .n_layers = 3},
            {"tiny-llama (4 layers of 64", "tiny-qwen3 (3 layers of 64, 323"}}}) {
    const ModelFile model = other(spec);
    const std::string said = error_of(path, model);
    for (const std::string& word : words) EXPECT_NE(said.find(word), std::string::npos) << said;
    EXPECT_NE(said.find(model.path()), std::string::npos) << said;
  }
  // The right weights under the wrong sizes.
  expect_errors({.kind = "exit"}, {sets("is a head of tiny-llama (5 layers", "target.block_count", uint32_t{5})});
  const std::string theirs = tiny_head(target(), {.kind = "eagle3", .signed_by_us = false}).write(temp_path("e.gguf"));
  EXPECT_NE(error_of(theirs, other({})).find("is a head of another model (layers of 64, 267 tokens)"),
            std::string::npos);
}

TEST(HeadErrors, WhatIsGivenUnderTheWrongOptionSaysWhichIsRight) {
  const std::string another = test::write_tiny_model({.seed = 2}, test::temp_path("another.gguf"));
  EXPECT_NE(error_of(another).find("whole model of architecture llama, not a head; give it as --draft"),
            std::string::npos);
  EXPECT_NE(error_of(target().path()).find("has no layer to predict further tokens"), std::string::npos);
  GgufDraft strange = tiny_head(target(), {.kind = "spd"});
  strange.set("general.architecture", "bert\n");
  EXPECT_NE(error_of(strange.write(temp_path("strange.gguf"))).find("architecture is 'bert"), std::string::npos);
  for (const char* kind : {"spd", "eagle3", "p-eagle", "exit"}) {
    const auto refused =
        ModelFile::open_draft(tiny_head(target(), {.kind = kind}).write(temp_path("kind.gguf")), target());
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(std::string("head of kind ") + kind), std::string::npos);
    EXPECT_NE(refused.error().message.find("give it as --head"), std::string::npos);
  }
}

// What follows spoils bytes.

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const TinyHeadSpec& spec) {
  std::ifstream file(tiny_head(target(), spec).write(temp_path("whole.gguf")), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// True if the bytes were accepted as a head, which then can be mapped.
bool survives(const test::MemoryFile& file) {
  const auto head = HeadFile::open(file.path(), target());
  HeadFile::is_head(file.path());
  if (!head) {
    EXPECT_FALSE(head.error().message.empty());
    return false;
  }
  head->metadata();
  EXPECT_TRUE(head->map());
  if (head->parameters().kind == HeadKind::kDraft) {
    const auto draft = ModelFile::open_draft(file.path(), target());
    EXPECT_TRUE(draft && draft->map({0, draft->hparams().n_layers}, true, true));
  }
  return true;
}

size_t header_size(const Bytes& bytes) { return gguf::Header::parse(bytes).value().data_offset(); }

uint32_t pick(uint32_t n, uint32_t which, uint32_t limit) {
  return philox4x32({n, which, 1, static_cast<uint32_t>(Purpose::kTest)}, {2026, 11})[0] % limit;
}

const std::vector<TinyHeadSpec>& every_kind() {
  static const std::vector<TinyHeadSpec> specs = {{.kind = "spd", .vocabulary = {1, 2, 9}},
                                                  {.kind = "eagle3", .vocabulary = {1, 2, 9}},
                                                  {.kind = "p-eagle", .masks_by_depth = true},
                                                  {.kind = "exit", .own_output = false},
                                                  {.kind = "draft", .vocabulary = {1, 2, 9}}};
  return specs;
}

TEST(HostileHead, CutAnywhere) {
  for (const TinyHeadSpec& spec : every_kind()) {
    const Bytes whole = bytes_of(spec);
    test::MemoryFile file;
    const auto cut = [&](size_t size) {
      file.set(std::span(whole).first(size));
      EXPECT_FALSE(survives(file)) << spec.kind << " cut at " << size;
    };
    for (size_t size = 0; size < header_size(whole); size += 16) cut(size);
    for (uint32_t i = 0; i < 50; ++i) cut(pick(i, 0, static_cast<uint32_t>(whole.size() - 128)));
    file.set(whole);
    EXPECT_TRUE(survives(file)) << spec.kind;
  }
}

TEST(HostileHead, MutatedHeaders) {
  constexpr uint32_t kRounds = 1000;
  for (const TinyHeadSpec& spec : every_kind()) {
    const Bytes whole = bytes_of(spec);
    const auto header = static_cast<uint32_t>(header_size(whole));
    test::MemoryFile file;
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < kRounds; ++i) {
      Bytes bytes = whole;
      constexpr uint64_t kWords[] = {0, 1, 9, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x100000000, 1 << 20};
      const uint32_t at = pick(i, 2, header - 8), kind = pick(i, 10, 3);
      if (kind == 0) bytes[at] ^= static_cast<std::byte>(1u << pick(i, 20, 8));
      if (kind == 1) bytes[at] = static_cast<std::byte>(pick(i, 20, 256));
      if (kind == 2) std::memcpy(&bytes[at], &kWords[pick(i, 20, std::size(kWords))], pick(i, 30, 2) ? 8 : 4);
      file.set(bytes);
      accepted += survives(file);
    }
    EXPECT_GT(accepted, 0u) << spec.kind;
    EXPECT_LT(accepted, kRounds) << spec.kind;
  }
}

TEST(HostileHead, WrongTypes) {
  for (const TinyHeadSpec& spec : every_kind()) {
    const Bytes whole = bytes_of(spec);
    const auto header = gguf::Header::parse(whole).value();
    test::MemoryFile file;
    for (const auto& [key, value] : header.entries()) {
      for (uint32_t type = 0; type < 14; ++type) {
        Bytes bytes = whole;
        std::memcpy(&bytes[value.offset - (value.is_array ? 16 : 4)], &type, sizeof(type));
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
}

// Every number in the header made gigantic in turn.
TEST(HostileHead, GiganticCounts) {
  for (const TinyHeadSpec& spec : every_kind()) {
    const Bytes whole = bytes_of(spec);
    test::MemoryFile file;
    for (size_t at = 4; at + 8 <= header_size(whole); at += 3) {
      Bytes bytes = whole;
      const uint64_t huge = uint64_t{1} << (at % 2 == 0 ? 62 : 31);
      std::memcpy(&bytes[at], &huge, sizeof(huge));
      file.set(bytes);
      survives(file);
    }
  }
}

}  // namespace
}  // namespace sluice
