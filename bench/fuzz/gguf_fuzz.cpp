// libFuzzer target: a model file of any bytes is described, and refused or opened, mapped and tokenized with, its
// further layer too; never a crash.
#include <cstdint>
#include <span>

#include "model/head_file.h"
#include "model/survey.h"
#include "model/tokenizer.h"
#include "support/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static sluice::test::MemoryFile file;
  file.set(std::as_bytes(std::span(data, size)));
  if (const auto survey = sluice::Survey::open(file.path())) {
    survey->hparams();
    survey->unsupported();
  }
  const auto model = sluice::ModelFile::open(file.path());
  if (!model) return 0;
  model->metadata();
  model->tensors();
  const auto weights = model->map({0, model->hparams().n_layers}, true, true);
  if (const auto further = sluice::HeadFile::open(file.path(), *model)) static_cast<void>(further->map());
  if (weights && model->hparams().n_layers > 0) weights->release(weights->layers[0].q);
  if (const auto tokenizer = sluice::Tokenizer::load(*model)) {
    const auto tokens = tokenizer->encode("Why is <s> the sky\n blue? 42 \xF0\x9F\xA6\x89", true, true);
    if (tokens) tokenizer->decode(*tokens, true);
  }
  return 0;
}
