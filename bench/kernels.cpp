// Products by weight type and width beside ggml_mul_mat, and tree attention by path length. One thread; with
// SLUICE_ISA=avx2 (and so on) ours with another instruction set. And how fast one thread, or several, read memory; and
// heads of gated delta nets: a token's step, the adding of what another one changed, and a state's way from one slot of
// a tree's nodes to another.
//
//   sluice_kernel_times --benchmark_filter='(linear|ggml)/q4_1'
#include "compute/kernels/kernels.h"

#include <benchmark/benchmark.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "compute/attention.h"
#include "compute/kernels/pack.h"
#include "compute/linear.h"

namespace sluice {
namespace {

constexpr int64_t kIn = 1536, kOut = 2048;

std::vector<float> random_values(int64_t n) {
  std::mt19937 bits(1);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = normal(bits);
  return out;
}

// A few rows, over and over: quantising takes ggml far longer than what is measured.
std::vector<std::byte> random_weights(ggml_type type) {
  constexpr int64_t kRandomRows = 32;
  const size_t random = ggml_row_size(type, kIn) * static_cast<size_t>(kRandomRows);
  std::vector<std::byte> bytes(random * static_cast<size_t>(kOut / kRandomRows));
  const std::vector<float> importance(static_cast<size_t>(kIn), 1.0f);
  ggml_quantize_chunk(type, random_values(kIn * kRandomRows).data(), bytes.data(), 0, kRandomRows, kIn,
                      importance.data());
  for (size_t at = random; at < bytes.size(); at += random) {
    std::copy_n(bytes.begin(), random, bytes.begin() + static_cast<ptrdiff_t>(at));
  }
  return bytes;
}

void report(benchmark::State& state, int64_t width) {
  using benchmark::Counter;
  state.counters["GMAC/s"] =
      Counter(1e-9 * static_cast<double>(kIn * kOut * width), Counter::kIsIterationInvariantRate);
}

// Every thread sums up its own piece, far larger than any cache.
void run_memory(benchmark::State& state) {
  constexpr size_t kWords = size_t{1} << 26;  // half a gigabyte
  static const std::vector<uint64_t> words(kWords, 1);
  const size_t n = kWords / static_cast<size_t>(state.threads());
  const uint64_t* const begin = words.data() + n * static_cast<size_t>(state.thread_index());
  for (auto _ : state) benchmark::DoNotOptimize(std::accumulate(begin, begin + n, uint64_t{0}));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(n * sizeof(uint64_t)));
}

void run_linear(benchmark::State& state, ggml_type type, bool by_indices) {
  const int64_t width = state.range(0);
  kernels::keep_indices(by_indices);
  const std::vector<std::byte> bytes = random_weights(type);
  Arena memory;
  ThreadTeam team(1);
  const Linear linear =
      *Linear::create({"w", type, {kIn, kOut}, bytes.data(), ggml_row_size(type, kIn)}, {}, memory, team);
  const std::vector<float> x = random_values(kIn * width);
  std::vector<float> y(static_cast<size_t>(kOut * width));
  FormatSet formats;
  formats.add(linear.format());
  LinearInput input(width);
  input.reserve(formats, kIn);
  for (auto _ : state) {
    for (int64_t i = 0; i < width; ++i) input.store(formats, i, {x.data() + i * kIn, static_cast<size_t>(kIn)});
    linear.multiply(input, {0, width}, {0, kOut}, {y.data(), kOut});
    benchmark::DoNotOptimize(y.data());
  }
  report(state, width);
}

void run_ggml(benchmark::State& state, ggml_type type) {
  const int64_t width = state.range(0);
  const std::vector<std::byte> bytes = random_weights(type);
  const std::vector<float> x = random_values(kIn * width);
  const size_t memory = bytes.size() + static_cast<size_t>(width * (kIn + kOut)) * 4 + (size_t{1} << 20);
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(ggml_init({memory, nullptr, false}), ggml_free);
  ggml_tensor* w = ggml_new_tensor_2d(context.get(), type, kIn, kOut);
  ggml_tensor* in = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, kIn, width);
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(w->data));
  std::copy(x.begin(), x.end(), static_cast<float*>(in->data));
  ggml_cgraph* graph = ggml_new_graph(context.get());
  ggml_build_forward_expand(graph, ggml_mul_mat(context.get(), w, in));
  ggml_cplan plan = ggml_graph_plan(graph, 1, nullptr);
  std::vector<uint8_t> work(plan.work_size);
  plan.work_data = work.data();
  for (auto _ : state) ggml_graph_compute(graph, &plan);
  report(state, width);
}

// Eight rows of SmolLM2's shape, 9 heads on 3 of keys and values, on one path: together, or as if they had none in
// common.
void run_attention(benchmark::State& state, KvType type, bool together) {
  const auto length = static_cast<int32_t>(state.range(0));
  const AttentionShape shape{9, 3, 64};
  KvLayer kv(shape, length, type);
  std::vector<Cell> cells;
  const std::vector<float> values = random_values(shape.kv_width());
  for (int32_t i = 0; i < length; ++i) {
    cells.push_back(Cell(i));
    kv.write(Cell(i), values.data(), values.data());
  }
  const Path path{cells, {}};
  const std::vector<float> q = random_values(shape.n_heads * shape.head_dim);
  std::vector<float> out(q.size());
  const std::vector<AttentionRow> rows(TreeAttention::kRows, {&path, q.data(), out.data()});
  const size_t n = together ? rows.size() : 1;
  AttentionScratch scratch(shape, length);
  const TreeAttention attention(shape);
  for (auto _ : state) {
    for (int64_t head = 0; head < shape.n_heads; head += 3)
      for (size_t first = 0; first < rows.size(); first += n)
        attention.run(kv, std::span(rows).subspan(first, n), {length}, {head, head + 3}, scratch);
    benchmark::DoNotOptimize(out.data());
  }
}

constexpr int64_t kDeltaHead = 128, kStateFloats = kDeltaHead * kDeltaHead;

void run_delta(benchmark::State& state, bool known) {
  const std::vector<float> row = random_values(3 * kDeltaHead);
  std::vector<float> head(static_cast<size_t>(kStateFloats)), change(kDeltaHead, 0.01f), out(kDeltaHead);
  const float* const key = row.data();
  const kernels::DeltaStep step{key, key + kDeltaHead, key + 2 * kDeltaHead, 0.1f, 0.9f, change.data(), out.data()};
  for (auto _ : state) {
    if (known)
      kernels::kernels().delta_update(head.data(), head.data(), kDeltaHead, key, change.data(), 0.9f);
    else
      kernels::kernels().delta_step(head.data(), head.data(), kDeltaHead, step);
    benchmark::DoNotOptimize(head.data());
  }
}

// Slots whose states are those of a head of 16 in one layer of 18, of 256 nodes; the ways are not foreseen.
void run_slots(benchmark::State& state) {
  constexpr size_t kSlots = 256, kHeads = 16;
  std::vector<float> slots(kSlots * kHeads * static_cast<size_t>(kStateFloats), 1.0f);
  std::mt19937 bits(1);
  for (auto _ : state) {
    const size_t head = bits() % kHeads, from = bits() % kSlots, to = bits() % kSlots;
    const auto at = [&](size_t slot) {
      return slots.begin() + static_cast<int64_t>(slot * kHeads + head) * kStateFloats;
    };
    if (from != to) std::copy_n(at(from), kStateFloats, at(to));
    benchmark::DoNotOptimize(slots.data());
  }
}

void register_all() {
  for (const ggml_type type :
       {GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_BF16, GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_Q4_0, GGML_TYPE_Q4_K,
        GGML_TYPE_Q6_K, GGML_TYPE_Q2_K, GGML_TYPE_TQ2_0, GGML_TYPE_Q1_0, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ1_S,
        GGML_TYPE_IQ1_M, GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S, GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S}) {
    for (const int64_t width : {1, 2, 4, 8, 16, 64, 256}) {
      const std::string name = ggml_type_name(type);
      benchmark::RegisterBenchmark(("linear/" + name).c_str(), [type](auto& state) {
        run_linear(state, type, /*by_indices=*/false);
      })->Arg(width);
      if (name.starts_with("iq") && type != GGML_TYPE_IQ4_NL)
        benchmark::RegisterBenchmark(("indexed/" + name).c_str(), [type](auto& state) {
          run_linear(state, type, /*by_indices=*/true);
        })->Arg(width);
      benchmark::RegisterBenchmark(("ggml/" + name).c_str(), [type](auto& state) {
        run_ggml(state, type);
      })->Arg(width);
    }
  }
  benchmark::RegisterBenchmark("memory", run_memory)->ThreadRange(1, 2)->UseRealTime();
  benchmark::RegisterBenchmark("delta/step", [](auto& state) { run_delta(state, /*known=*/false); });
  benchmark::RegisterBenchmark("delta/update", [](auto& state) { run_delta(state, /*known=*/true); });
  benchmark::RegisterBenchmark("delta/slot", run_slots)->ThreadRange(1, 2)->UseRealTime();
  for (const auto& [type_name, type] : {std::pair{"f16", KvType::kF16}, {"f32", KvType::kF32}, {"q8_0", KvType::kQ8_0}})
    for (const bool together : {true, false}) {
      const auto name = std::string("attention/") + type_name + (together ? "" : "/apart");
      benchmark::RegisterBenchmark(name.c_str(),
                                   [type = type, together](auto& state) { run_attention(state, type, together); })
          ->RangeMultiplier(4)
          ->Range(16, 4096);
    }
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (!sluice::kernels::use_kernels_of_environment()) return 2;
  ggml_cpu_init();
  sluice::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
