// Writes the seeds of gguf_fuzz, a small model of each family and vocabulary, to the directory that is named.
#include <cstdio>
#include <exception>
#include <filesystem>

#include "support/tiny_model.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus DIRECTORY\n");
    return 2;
  }
  try {
    const std::filesystem::path directory(argv[1]);
    std::filesystem::create_directories(directory);
    for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
      for (const char* tokenizer : {"gpt2", "llama"}) {
        sluice::test::TinyModelSpec spec;
        spec.architecture = architecture;
        spec.tokenizer = tokenizer;
        spec.n_layers = 1;
        spec.d_model = spec.d_ff = 2;
        spec.n_heads = spec.n_kv_heads = 1;
        spec.head_dim = 2;
        spec.extra_tokens = 2;
        spec.tied = true;
        spec.rope_scaling = "yarn";
        write_tiny_model(spec, directory / (std::string(architecture) + "-" + tokenizer + ".gguf"));
      }
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "make_corpus: %s\n", e.what());
    return 1;
  }
}
