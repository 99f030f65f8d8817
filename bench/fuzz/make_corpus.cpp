// Writes the seeds of the fuzzing to the directories that are named: a small model of each family and vocabulary, and a
// head of each kind.
#include <cstdio>
#include <exception>
#include <filesystem>

#include "seeds.h"
#include "support/tiny_head.h"

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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: make_corpus MODELS HEADS\n");
    return 2;
  }
  try {
    for (const int i : {1, 2}) std::filesystem::create_directories(argv[i]);
    write_models(argv[1]);
    write_heads(argv[2]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "make_corpus: %s\n", e.what());
    return 1;
  }
}
