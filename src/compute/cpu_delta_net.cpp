// CpuBlock's operations on a gated delta net, in place of those of attention.
#include "base/math.h"
#include "compute/cpu_block.h"

namespace sluice {

namespace {

float sigmoid(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

// ln(1 + e^x).
float softplus(float x) {
  constexpr float kStraight = 20.0f;
  return x < kStraight ? static_cast<float>(log_f64(1.0 + exp_f64(x))) : x;
}

}  // namespace

void CpuBlock::reserve_for_delta_nets() {
  if (delta_.layers.empty()) return;
  const int64_t n = delta_.head_dim;
  deltas_.stride = delta_.projected_width();
  deltas_.zeros.assign(static_cast<size_t>(n * n), 0.0f);
  const float root = std::sqrt(static_cast<float>(n));
  deltas_.of_query.assign(static_cast<size_t>(n), 1.0f / static_cast<float>(n));
  deltas_.of_key.assign(static_cast<size_t>(n), 1.0f / root);
}

void CpuBlock::Thread::project(const DeltaNet& delta) {
  const DeltaRows& rows = b_.deltas_;
  float* const mixed = rows.projected.as<float>();
  float* const gate = mixed + b_.delta_.mixed_width();
  float* const intake = gate + b_.delta_.value_width();
  if (delta.keeps_apart)
    return project({{&delta.mixed, mixed, rows.stride},
                    {&delta.output_gate, gate, rows.stride},
                    {&delta.intake, intake, rows.stride},
                    {&delta.keep, intake + b_.delta_.n_value_heads, rows.stride}});
  project({{&delta.mixed, mixed, rows.stride},
           {&delta.output_gate, gate, rows.stride},
           {&delta.intake, intake, rows.stride}});
}

// Heads of the rows' queries, keys and values.
void CpuBlock::Thread::convolve(const DeltaNet& delta) {
  constexpr int64_t kHeadsAtOnce = 8;
  const int64_t n_heads = b_.delta_heads();
  divide(b_.n_rows_ * n_heads, kHeadsAtOnce, [&](Part heads) {
    for (int64_t i = heads.begin; i < heads.end; ++i) convolve(delta, i / n_heads, i % n_heads);
  });
  done();
}

// Null: there is none.
const float* CpuBlock::Thread::convolved_input(const DeltaNet& delta, FoldedStates::Input input,
                                               const float* tail) const {
  using Of = FoldedStates::Input::Of;
  switch (input.of) {
    case Of::kRow:
      return b_.deltas_.projected.as<float>() + input.at * b_.deltas_.stride;
    case Of::kUpdate:
      return b_.states_->input(input.at, delta.index);
    case Of::kState:
      return tail + input.at * b_.delta_.mixed_width();
    case Of::kNobody:
      break;
  }
  return nullptr;
}

void CpuBlock::Thread::convolve(const DeltaNet& delta, int64_t row, int64_t head) {
  const DeltaNetParameters& shape = b_.delta_;
  const FoldedStates& states = *b_.states_;
  const int64_t n = shape.head_dim, width = shape.mixed_width(), at = head * n;
  const FoldedStates::Work& work = states.work_of(row);
  const float* const tail = work.state != nullptr ? states.tail(work, delta.index) : nullptr;
  std::array<const float*, kMostTaps> inputs{};
  size_t taps = 0;
  for (const FoldedStates::Input input : states.inputs(row)) {
    const float* const before = convolved_input(delta, input, tail);
    inputs[taps++] = before != nullptr ? before + at : b_.deltas_.zeros.data();
  }
  const float* const own = b_.deltas_.projected.as<float>() + row * b_.deltas_.stride + at;
  inputs[taps++] = own;
  float* const out = b_.deltas_.convolved.as<float>() + row * width + at;
  b_.kernels_.short_convolution(inputs.data(), static_cast<int64_t>(taps), delta.convolution.data() + at, width, n,
                                out);
  const bool is_query = head < shape.n_key_heads, is_key = !is_query && head < 2 * shape.n_key_heads;
  if (is_query || is_key)  // x / |x|, as a norm
    b_.kernels_.rms_norm(out, (is_query ? b_.deltas_.of_query : b_.deltas_.of_key).data(), n,
                         b_.norm_epsilon_ / static_cast<float>(n), out);
  const int32_t update = states.update_of(row);
  if (update < 0) return;
  std::copy(own, own + n, states.input(update, delta.index) + at);
  if (is_key) std::copy(out, out + n, states.keys(update, delta.index) + at - shape.key_width());
}

// Heads of the states, and what convolutions need of those that are committed.
void CpuBlock::Thread::fold(const DeltaNet& delta) {
  const auto work = b_.states_->work();
  const int64_t n_units = b_.delta_.n_value_heads + 1;
  divide(std::ssize(work) * n_units, 1, [&](Part units) {
    for (int64_t unit = units.begin; unit < units.end; ++unit) {
      const FoldedStates::Work& one = work[static_cast<size_t>(unit / n_units)];
      if (unit % n_units > 0)
        fold(delta, one, unit % n_units - 1);
      else
        move_tail(delta, one);
    }
  });
  done();
}

void CpuBlock::Thread::fold(const DeltaNet& delta, const FoldedStates::Work& work, int64_t head) {
  const DeltaNetParameters& shape = b_.delta_;
  const FoldedStates& states = *b_.states_;
  const int64_t n = shape.head_dim;
  const int64_t key_head =
      shape.neighbours_share ? head / (shape.n_value_heads / shape.n_key_heads) : head % shape.n_key_heads;
  Memory& copies = b_.deltas_.copies[static_cast<size_t>(thread_)];
  if (copies.size() == 0) copies = Memory(static_cast<size_t>((states.n_copies() * n + 2) * n) * sizeof(float));
  const auto place = [&](int32_t at) {
    if (at == FoldedStates::kZeros) return b_.deltas_.zeros.data();
    if (at == FoldedStates::kCommitted) return states.state(work, delta.index) + head * n * n;
    return copies.as<float>() + at * n * n;
  };
  for (size_t i = 0; i < work.steps.size(); ++i) {
    const FoldedStates::Step& step = work.steps[i];
    const float* const from = place(step.from);
    float* const to = place(step.to);
    if (step.row >= 0) {
      fold_row(delta, step, head, key_head, from, to);
    } else {
      b_.kernels_.delta_update(from, to, n, states.keys(step.update, delta.index) + key_head * n,
                               states.changes(step.update, delta.index) + head * n,
                               states.kept(step.update, delta.index)[head]);
    }
    if (i + 1 == work.steps_to_checkpoint)
      std::copy(to, to + n * n, states.checkpoint(work, delta.index) + head * n * n);
  }
}

void CpuBlock::Thread::fold_row(const DeltaNet& delta, const FoldedStates::Step& step, int64_t head, int64_t key_head,
                                const float* from, float* to) {
  const DeltaNetParameters& shape = b_.delta_;
  const FoldedStates& states = *b_.states_;
  const int64_t n = shape.head_dim;
  float* const projected = b_.deltas_.projected.as<float>() + step.row * b_.deltas_.stride;
  float* const gate = projected + shape.mixed_width() + head * n;
  const float* const logits = projected + shape.mixed_width() + shape.value_width();
  // Together, those of a key head's value heads lie side by side.
  const int64_t share = delta.keeps_apart ? shape.n_value_heads : shape.n_value_heads / shape.n_key_heads;
  const float* const intake = logits + head / share * 2 * share + head % share;
  const float keep = intake[share] + delta.keep_bias[static_cast<size_t>(head)];
  const float* const q = b_.deltas_.convolved.as<float>() + step.row * shape.mixed_width() + key_head * n;
  float* const room = b_.deltas_.copies[static_cast<size_t>(thread_)].as<float>() + states.n_copies() * n * n;
  const bool keeps = step.is_own && step.update >= 0;
  const kernels::DeltaStep one{.key = q + shape.key_width(),
                               .query = q,
                               .value = q + 2 * shape.key_width() + (head - key_head) * n,
                               .intake = sigmoid(*intake),
                               .keep = exp_f32(delta.keep_factor[static_cast<size_t>(head)] * softplus(keep)),
                               .change = keeps ? states.changes(step.update, delta.index) + head * n : room,
                               .out = room + n};
  b_.kernels_.delta_step(from, to, n, one);
  if (!step.is_own) return;
  if (keeps) states.kept(step.update, delta.index)[head] = one.keep;
  b_.kernels_.rms_norm(one.out, delta.norm.data(), n, b_.norm_epsilon_, one.out);
  b_.kernels_.silu_times(gate, one.out, n);
  std::copy(gate, gate + n, b_.attended_.as<float>() + step.row * shape.value_width() + head * n);
}

// The checkpoint's first, then in place: what moves down lies further up.
void CpuBlock::Thread::move_tail(const DeltaNet& delta, const FoldedStates::Work& work) {
  if (work.tail.empty()) return;
  const int64_t width = b_.delta_.mixed_width();
  float* const tail = b_.states_->tail(work, delta.index);
  const auto move = [&](std::span<const FoldedStates::Input> inputs, float* to) {
    for (const FoldedStates::Input input : inputs) {
      if (const float* const from = convolved_input(delta, input, tail); from != nullptr)
        std::copy(from, from + width, to);
      to += width;
    }
  };
  if (work.checkpoint != nullptr) move(work.checkpoint_tail, b_.states_->checkpoint_tail(work, delta.index));
  move(work.tail, tail);
}

}  // namespace sluice
