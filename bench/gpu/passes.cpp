#include <cmath>
#include <cstring>
#include <utility>

#include "bench.h"
#include "timing.h"

namespace gpu {
namespace {

// The last `rows` tokens of a path that fills the cache, each seeing itself and what comes before.
PassInput path_end(const Shape& shape, int rows, int cells, Noise& noise) {
  PassInput input(rows, shape.d, cells);
  noise.fill(input.hidden);
  for (int i = 0; i < rows; ++i) {
    const int own = cells - rows + i;
    input.positions[static_cast<size_t>(i)] = own;
    input.written[static_cast<size_t>(i)] = own;
    for (int c = 0; c <= own; ++c) input.see(i, c);
  }
  return input;
}

// The host's side of a pass: what goes to the device and what comes back, in pinned memory where there is such.
class HostEnds {
 public:
  HostEnds(const Device& device, const Pass& pass, const PassInput& input)
      : ends_(pass.ends()),
        result_(pass.result()),
        memory_(device.device(),
                ggml_nbytes(ends_.hidden) * 2 + ggml_nbytes(ends_.mask) + ggml_nbytes(ends_.written) * 2, true) {
    char* at = static_cast<char*>(memory_.data());
    const auto put = [&at](const auto& from) {
      const size_t bytes = from.size() * sizeof(from[0]);
      std::memcpy(at, from.data(), bytes);
      return std::exchange(at, at + bytes);
    };
    hidden_ = put(input.hidden);
    written_ = put(input.written);
    mask_ = put(input.mask);
    positions_ = put(input.positions);
    back_ = at;
  }
  void send(ggml_backend_t backend) const {
    for (const auto& [tensor, from] : {std::pair{ends_.hidden, hidden_}, std::pair{ends_.positions, positions_},
                                       std::pair{ends_.written, written_}, std::pair{ends_.mask, mask_}}) {
      ggml_backend_tensor_set_async(backend, tensor, from, 0, ggml_nbytes(tensor));
    }
  }
  void fetch(ggml_backend_t backend) const {
    ggml_backend_tensor_get_async(backend, result_, back_, 0, ggml_nbytes(result_));
  }

 private:
  Pass::Ends ends_;
  ggml_tensor* result_;
  HostMemory memory_;
  char *hidden_, *positions_, *written_, *mask_, *back_;
};

// Other hidden states that are on the device already, so that experts differ from pass to pass.
class HiddenStates {
 public:
  static constexpr int kCount = 8;
  HiddenStates(const Device& device, const Shape& shape, int rows, Noise& noise) : tensors_(device, kCount) {
    for (ggml_tensor*& t : states_) t = ggml_new_tensor_2d(tensors_.context(), GGML_TYPE_F32, shape.d, rows);
    tensors_.allocate();
    std::vector<float> values(static_cast<size_t>(ggml_nelements(states_[0])));
    for (ggml_tensor* t : states_) {
      noise.fill(values);
      ggml_backend_tensor_set(t, values.data(), 0, ggml_nbytes(t));
    }
  }
  void copy_next(ggml_backend_t backend, ggml_tensor* to) {
    ggml_backend_tensor_copy_async(backend, backend, states_[static_cast<size_t>(next_++ % kCount)], to);
  }

 private:
  Tensors tensors_;
  ggml_tensor* states_[kCount];
  int next_ = 0;
};

struct Times {
  Timing with_ways, alone, queued;
};

Times times_of(const Stage& stage, int rows, Attention attention, const Options& options) {
  const Device& device = stage.device();
  ggml_backend_t backend = device.backend();
  Noise noise(static_cast<uint64_t>(rows));
  const PassInput input = path_end(stage.shape(), rows, stage.cells(), noise);
  Pass pass(stage, rows, attention, !options.plain_graphs);
  pass.set(input);
  const HostEnds host(device, pass, input);
  HiddenStates states(device, stage.shape(), rows, noise);
  Times times;
  times.alone = time_of(options.seconds, [&] {
    states.copy_next(backend, pass.ends().hidden);
    pass.graph().run();
  });
  times.with_ways = time_of(options.seconds, [&] {
    host.send(backend);
    pass.graph().start();
    host.fetch(backend);
    device.wait();
  });
  constexpr int kQueue = 8;
  times.queued = time_of(options.seconds, [&] {
    for (int i = 0; i < kQueue; ++i) {
      states.copy_next(backend, pass.ends().hidden);
      pass.graph().start();
    }
    device.wait();
  });
  times.queued.median /= kQueue;
  return times;
}

void passes_of(const Stage& stage, const std::string& type, Attention attention, const Options& options,
               Results& results) {
  double one = 0;
  for (int rows : options.rows) {
    if (rows > stage.cells()) continue;
    const Times t = times_of(stage, rows, attention, options);
    if (one == 0) one = t.with_ways.median;
    results.write(Record("pass")
                      .set("shape", stage.shape().name)
                      .set("type", type)
                      .set("attention", name_of(attention))
                      .set("layers", stage.layers().size())
                      .set("cells", stage.cells())
                      .set("graphs", options.plain_graphs ? "as built" : "scheduled")
                      .set("rows", rows)
                      .set("ms", t.with_ways.median * 1e3)
                      .set("ms_least", t.with_ways.least * 1e3)
                      .set("ms_alone", t.alone.median * 1e3)
                      .set("ms_queued", t.queued.median * 1e3)
                      .set("of_first", t.with_ways.median / one)
                      .set("runs", t.with_ways.runs));
  }
}

double distance(const std::vector<float>& reference, const std::vector<float>& other) {
  double apart = 0, norm = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    apart += std::pow(reference[i] - other[i], 2.0);
    norm += std::pow(reference[i], 2.0);
  }
  return std::sqrt(apart / norm);
}

}  // namespace

ggml_type type_named(const std::string& name) {
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const auto type = static_cast<ggml_type>(i);
    if (ggml_blck_size(type) > 0 && name == ggml_type_name(type)) return type;
  }
  throw Refusal("no type " + name + "; ggml's names are meant, as f16, bf16, q8_0, q4_0, q4_K, q6_K");
}

void check(const Device& device, const Options& options, Results& results) {
  const Device reference("CPU", options.threads);
  for (const std::string& shape_name : options.shapes) {
    for (const std::string& type : options.types) {
      std::vector<float> first;  // of the CPU's outputs: kinds of attention compute the same
      for (const std::string& attention : options.attentions) {
        std::vector<float> out[2];
        for (int i = 0; i < 2; ++i) {
          const Shape& shape = shape_named(shape_name);
          const Stage stage(i == 0 ? reference : device, shape, type_named(type), 1, 512);
          Noise noise(5);
          Pass pass(stage, 8, attention_named(attention), false);
          pass.set(path_end(shape, 8, 512, noise));
          pass.graph().run();
          out[i] = pass.output();
        }
        if (first.empty()) first = out[0];
        results.write(Record("check")
                          .set("shape", shape_name)
                          .set("type", type)
                          .set("attention", attention)
                          .set("from_cpu", distance(out[0], out[1]))
                          .set("from_first_attention", distance(first, out[0])));
      }
    }
  }
}

void passes(const Device& device, const Options& options, Results& results) {
  for (const std::string& shape : options.shapes) {
    for (const std::string& type : options.types) {
      for (int layers : options.layers) {
        const Stage stage(device, shape_named(shape), type_named(type), layers, options.cells);
        results.write(Record("stage")
                          .set("shape", shape)
                          .set("type", type)
                          .set("layers", layers)
                          .set("weight_bytes", stage.weight_bytes()));
        for (const std::string& attention : options.attentions) {
          passes_of(stage, type, attention_named(attention), options, results);
        }
      }
    }
  }
}

// Logits, and the likeliest token, of every row; the latter alone comes back, or all logits.
void heads(const Device& device, const Options& options, Results& results) {
  for (const std::string& shape_name : options.shapes) {
    const Shape& shape = shape_named(shape_name);
    for (const std::string& type : options.types) {
      Tensors weights(device, 4);
      ggml_tensor* head = ggml_new_tensor_2d(weights.context(), type_named(type), shape.d, shape.vocabulary);
      ggml_tensor* norm = ggml_new_tensor_1d(weights.context(), GGML_TYPE_F32, shape.d);
      weights.allocate();
      Noise noise(3);
      WeightSource().fill(head, noise);
      ggml_backend_tensor_set(norm, std::vector<float>(static_cast<size_t>(shape.d), 1.0F).data(), 0,
                              ggml_nbytes(norm));
      for (int rows : options.rows) {
        if (rows > 128) continue;
        HiddenStates states(device, shape, rows, noise);
        Tensors inputs(device, 1);
        ggml_tensor* x = ggml_new_tensor_2d(inputs.context(), GGML_TYPE_F32, shape.d, rows);
        inputs.allocate();
        Graph graph(device, !options.plain_graphs, 64);
        ggml_context* c = graph.context();
        ggml_tensor* logits = ggml_mul_mat(c, head, ggml_mul(c, ggml_rms_norm(c, x, 1e-5F), norm));
        ggml_tensor* best = ggml_argmax(c, logits);
        ggml_set_output(logits);
        ggml_set_output(best);
        graph.add(best);
        graph.allocate();
        HostMemory back(device.device(), ggml_nbytes(logits), true);
        const auto timed = [&](ggml_tensor* result) {
          return time_of(options.seconds, [&] {
            states.copy_next(device.backend(), x);
            graph.start();
            ggml_backend_tensor_get_async(device.backend(), result, back.data(), 0, ggml_nbytes(result));
            device.wait();
          });
        };
        results.write(Record("head")
                          .set("shape", shape_name)
                          .set("type", type)
                          .set("rows", rows)
                          .set("ms_best", timed(best).median * 1e3)
                          .set("ms_logits", timed(logits).median * 1e3));
      }
    }
  }
}

}  // namespace gpu
