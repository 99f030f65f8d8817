// Writes the seeds of the fuzzing to the directories that are named: a small model of each family and vocabulary, a
// head of each kind, and messages of each kind.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "seeds.h"
#include "support/random_message.h"
#include "support/tiny_head.h"
#include "wire/codec.h"

namespace {

void write_models(const std::filesystem::path& directory) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"})
    for (const char* tokenizer : {"gpt2", "llama"})
      write_tiny_model(sluice::test::fuzzed_model(architecture, tokenizer),
                       directory / (std::string(architecture) + "-" + tokenizer + ".gguf"));
}

void write_heads(const std::filesystem::path& directory) {
  const std::string path = sluice::test::temp_path("target.gguf");
  const auto target = sluice::ModelFile::open(write_tiny_model(sluice::test::fuzzed_target(), path)).value();
  for (const char* kind : {"spd", "eagle3", "p-eagle", "exit", "draft"})
    for (const bool some : {false, true}) {
      sluice::test::TinyHeadSpec spec{.kind = kind};
      if (some) spec.vocabulary = {3, 9, 80};
      tiny_head(target, spec).write(directory / (std::string(kind) + (some ? "-some" : "") + ".gguf"));
    }
}

void write_messages(const std::filesystem::path& directory) {
  sluice::test::RandomMessages random(1);
  for (size_t kind = 0; kind < std::variant_size_v<sluice::Message>; ++kind)
    for (int i = 0; i < 20; ++i) {
      const auto bytes = sluice::encode(random.of_kind(kind));
      std::ofstream file(directory / (std::to_string(kind) + "-" + std::to_string(i)), std::ios::binary);
      file.exceptions(std::ios::failbit | std::ios::badbit);
      file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: make_corpus MODELS HEADS MESSAGES\n");
    return 2;
  }
  try {
    for (const int i : {1, 2, 3}) std::filesystem::create_directories(argv[i]);
    write_models(argv[1]);
    write_heads(argv[2]);
    write_messages(argv[3]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "make_corpus: %s\n", e.what());
    return 1;
  }
}
