// libFuzzer target: a model file of any bytes is refused or opened, mapped and tokenized with; never a crash.
#include <cstdint>
#include <span>

#include "model/tokenizer.h"
#include "support/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static sluice::test::MemoryFile file;
  file.set(std::as_bytes(std::span(data, size)));
  const auto model = sluice::ModelFile::open(file.path());
  if (!model) return 0;
  model->metadata();
  model->tensors();
  const auto weights = model->map({0, model->hparams().n_layers}, true, true);
  if (weights && model->hparams().n_layers > 0) weights->release(weights->layers[0].q);
  if (const auto tokenizer = sluice::Tokenizer::load(*model)) {
    const auto tokens = tokenizer->encode("Why is <s> the sky\n blue? 42 \xF0\x9F\xA6\x89", true, true);
    if (tokens) tokenizer->decode(*tokens, true);
  }
  return 0;
}
