#include "bench.h"
#include "timing.h"

namespace gpu {
namespace {

constexpr double kSeconds = 0.02;

void way(const Device& device, size_t bytes, const std::string& of, bool pinned, Results& results) {
  Tensors tensors(device, 1);
  ggml_tensor* t = ggml_new_tensor_1d(tensors.context(), GGML_TYPE_I8, static_cast<int64_t>(bytes));
  tensors.allocate();
  HostMemory host(device.device(), bytes, pinned);
  if (pinned && !host.pinned()) return;
  ggml_backend_t backend = device.backend();
  const Timing to = time_of(kSeconds, [&] {
    ggml_backend_tensor_set_async(backend, t, host.data(), 0, bytes);
    device.wait();
  });
  const Timing from = time_of(kSeconds, [&] {
    ggml_backend_tensor_get_async(backend, t, host.data(), 0, bytes);
    device.wait();
  });
  results.write(Record("link")
                    .set("of", of)
                    .set("bytes", bytes)
                    .set("memory", pinned ? "pinned" : "pageable")
                    .set("us_to", to.median * 1e6)
                    .set("us_from", from.median * 1e6)
                    .set("gb_s_to", static_cast<double>(bytes) / to.median * 1e-9)
                    .set("gb_s_from", static_cast<double>(bytes) / from.median * 1e-9));
}

// A chain of operations on 256 numbers each.
void launch(const Device& device, int nodes, bool scheduled, Results& results) {
  Tensors tensors(device, 2);
  ggml_tensor* x = ggml_new_tensor_1d(tensors.context(), GGML_TYPE_F32, 256);
  ggml_tensor* y = ggml_new_tensor_1d(tensors.context(), GGML_TYPE_F32, 256);
  tensors.allocate();
  tensors.clear();
  Graph graph(device, scheduled);
  ggml_tensor* end = x;
  for (int i = 0; i < nodes; ++i) {  // two kinds in turn, which no backend fuses
    end = i % 2 == 0 ? ggml_scale(graph.context(), end, 1.5F) : ggml_mul(graph.context(), end, y);
  }
  ggml_set_output(end);
  graph.add(end);
  graph.allocate();
  const Timing alone = time_of(kSeconds, [&] { graph.run(); });
  std::vector<double> held_up(50);  // of the host, until a graph is on its way
  for (double& t : held_up) {
    const double start = now();
    graph.start();
    t = now() - start;
    device.wait();
  }
  std::sort(held_up.begin(), held_up.end());
  float numbers[256] = {};
  const Timing there_and_back = time_of(kSeconds, [&] {
    ggml_backend_tensor_set_async(device.backend(), x, numbers, 0, sizeof numbers);
    graph.start();
    ggml_backend_tensor_get_async(device.backend(), end, numbers, 0, sizeof numbers);
    device.wait();
  });
  results.write(Record("launch")
                    .set("nodes", nodes)
                    .set("graphs", scheduled ? "scheduled" : "as built")
                    .set("us", alone.median * 1e6)
                    .set("us_start", held_up[held_up.size() / 2] * 1e6)
                    .set("us_with_ways", there_and_back.median * 1e6));
}

void device_memory(const Device& device, Results& results) {
  constexpr size_t kBytes = 256U << 20;
  Tensors tensors(device, 2);
  ggml_tensor* a = ggml_new_tensor_1d(tensors.context(), GGML_TYPE_I8, kBytes);
  ggml_tensor* b = ggml_new_tensor_1d(tensors.context(), GGML_TYPE_I8, kBytes);
  tensors.allocate();
  const Timing t = time_of(kSeconds, [&] {
    ggml_backend_tensor_copy_async(device.backend(), device.backend(), a, b);
    device.wait();
  });
  results.write(
      Record("device_memory").set("bytes_read_and_written", 2 * kBytes).set("gb_s", 2.0 * kBytes / t.median * 1e-9));
}

}  // namespace

void links(const Device& device, const Options&, Results& results) {
  for (int nodes : {1, 10, 100, 300, 1000}) {
    for (bool scheduled : {true, false}) launch(device, nodes, scheduled, results);
  }
  device_memory(device, results);
  for (bool pinned : {true, false}) {
    for (size_t bytes = 8 << 10; bytes <= 16 << 20; bytes *= 2) way(device, bytes, "bytes", pinned, results);
    for (size_t d : {4096, 8192}) {
      for (size_t rows : {1, 16, 64}) {
        way(device, rows * d * sizeof(float), std::to_string(rows) + " rows of " + std::to_string(d), pinned, results);
      }
    }
  }
}

}  // namespace gpu
