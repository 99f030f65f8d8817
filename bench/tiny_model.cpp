// Writes a model with random weights and byte tokens, whose layers cost next to nothing: for schedules whose cuts must
// come out even, which those of real models rarely do.
//
//   tiny_model FILE [--layers 32] [--context 32768]
#include "support/tiny_model.h"

#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
  CLI::App app("Writes a model with random weights");
  std::string file;
  int32_t layers = 32, context = 32768;
  app.add_option("file", file, "The model, a GGUF file")->required();
  app.add_option("--layers", layers, "Of the model")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--context", context, "Tokens that it may have")->capture_default_str()->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  auto spec = sluice::test::narrow_model(layers);
  spec.context_length = context;
  sluice::test::write_tiny_model(spec, file);
  return 0;
}
