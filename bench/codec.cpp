// How long it takes to encode and decode a batch with 48 KB of hidden states: 16 rows of 768 values.
#include "wire/codec.h"

#include <benchmark/benchmark.h>

namespace {

sluice::Message batch() {
  sluice::Batch batch{.id = sluice::BatchId(1), .rows = std::vector<sluice::Row>(16)};
  batch.updates = {sluice::Commit{sluice::SequenceId(1), sluice::Cell(2)}};
  batch.hidden.resize(16 * 768, 0.5f);
  return batch;
}

void encode(benchmark::State& state) {
  const sluice::Message message = batch();
  for (auto _ : state) benchmark::DoNotOptimize(sluice::encode(message));
}
BENCHMARK(encode);

void decode(benchmark::State& state) {
  const auto bytes = sluice::encode(batch());
  for (auto _ : state) benchmark::DoNotOptimize(sluice::decode(bytes));
}
BENCHMARK(decode);

}  // namespace

BENCHMARK_MAIN();
