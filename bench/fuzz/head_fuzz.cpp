// libFuzzer target: a head's file of any bytes is refused, or opened and mapped with its target; never a crash.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "model/head_file.h"
#include "seeds.h"
#include "support/memory_file.h"

namespace {

const sluice::ModelFile& target() {
  static const sluice::ModelFile model = [] {
    const std::string path = sluice::test::temp_path("target.gguf");
    return sluice::ModelFile::open(write_tiny_model(sluice::test::fuzzed_target(), path)).value();
  }();
  return model;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static sluice::test::MemoryFile file;
  file.set(std::as_bytes(std::span(data, size)));
  sluice::HeadFile::is_head(file.path());
  if (const auto draft = sluice::ModelFile::open_draft(file.path(), target()))
    static_cast<void>(draft->map({0, draft->hparams().n_layers}, true, true));
  const auto alone = sluice::HeadFile::inspect(file.path());
  if (!alone) return 0;
  alone->metadata();
  alone->tensors();
  const auto head = sluice::HeadFile::open(file.path(), target());
  if (!head) return 0;
  const auto weights = head->map();
  // What every reader of a head takes for granted.
  for (const sluice::Token token : head->parameters().vocabulary)
    if (token < 0 || token >= target().hparams().n_vocab) std::abort();
  for (const int32_t layer : head->parameters().tapped_layers())
    if (layer < 0 || layer > target().hparams().n_layers) std::abort();
  return 0;
}
