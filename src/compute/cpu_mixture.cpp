// CpuBlock's operations on a mixture of experts.
#include "compute/cpu_block.h"
#include "compute/expert_pool.h"

namespace sluice {

void CpuBlock::reserve_for_experts() {
  if (!mixture_) return;
  experts_.in.reserve(experts_.in_formats, d_model_);
  experts_.of_down.reserve(experts_.down_formats, mixture_.d_ff);
  if (mixture_.d_shared > 0) experts_.of_shared_down.reserve(experts_.down_formats, mixture_.d_shared);
}

void CpuBlock::Thread::add_mixture(const Layer& layer, float* x) {
  const Mixture& mixture = *layer.mixture;
  if (mixture.beside_dense) {
    compute_dense(layer);
    normalise(x, mixture.beside_dense->router, mixture.beside_dense->router_formats);
  }
  route(mixture);
  if (mixture.beside_dense) normalise(x, mixture.beside_dense->experts, mixture.formats);
  gather(mixture);
  gate_experts(layer);
  add_experts(layer, x);
}

// What a dense network beside the experts gives, normed: of its own rows each thread may read it.
void CpuBlock::Thread::compute_dense(const Layer& layer) {
  const int64_t d = b_.d_model_;
  float* const y = b_.product_.as<float>();
  gate(layer);
  take(b_.gate_.as<float>(), layer.ffn.down.n_in(), layer.down_formats);
  divide_outputs(d, [&](Part outputs) { layer.ffn.down.multiply(input(), {0, b_.n_rows_}, outputs, {y, d}); });
  done();
  const Part mine = rows();
  for (int64_t i = mine.begin; i < mine.end; ++i)
    b_.kernels_.rms_norm(y + i * d, layer.mixture->beside_dense->dense_post.data(), d, b_.norm_epsilon_, y + i * d);
}

// Every thread chooses for its own rows, and finds the places of all.
void CpuBlock::Thread::route(const Mixture& mixture) {
  const int64_t n_logits = mixture.rules.n_experts + 1, n = b_.n_choices_of_row();
  float* const logits = b_.experts_.logits.as<float>();
  project({{&mixture.router, logits, n_logits}, {&mixture.shared_router, logits + mixture.rules.n_experts, n_logits}});
  const Part mine = rows();
  for (int64_t i = mine.begin; i < mine.end; ++i)
    choose(mixture, {logits + i * n_logits, static_cast<size_t>(n_logits)},
           b_.experts_.room[static_cast<size_t>(thread_)],
           std::span(b_.experts_.choices).subspan(static_cast<size_t>(i * n), static_cast<size_t>(n)));
  b_.team_.barrier();
  groups().sort(choices(), static_cast<int32_t>(mixture.networks.size()));
  if (mixture.pool != nullptr) fetch(mixture);
}

// Experts that wait in the file: those that have rows are packed.
void CpuBlock::Thread::fetch(const Mixture& mixture) {
  constexpr int64_t kGrainsAtOnce = 4;
  ExpertPool& pool = *mixture.pool;
  const auto wanted = groups().groups();
  if (!pool.lacks_some(mixture, wanted)) {
    if (thread_ == 0) pool.use(mixture, wanted);
    return;
  }
  b_.team_.barrier();  // all have looked
  if (thread_ == 0) pool.make_room(mixture, wanted);
  b_.team_.barrier();
  int64_t all = 0;
  for (const Linear* matrix : pool.to_pack()) all += matrix->n_grains();
  divide(all, kGrainsAtOnce, [&](Part grains) {
    for (const Linear* matrix : pool.to_pack()) {
      const Part own{std::max<int64_t>(grains.begin, 0), std::min(grains.end, matrix->n_grains())};
      if (!own.empty()) matrix->pack(own);
      grains = {grains.begin - matrix->n_grains(), grains.end - matrix->n_grains()};
    }
  });
  done();
  if (thread_ == 0) pool.packed();
}

// Of a group's rows, side by side.
void CpuBlock::Thread::gather(const Mixture& mixture) {
  const Part mine = own_choices();
  for (int64_t i = mine.begin; i < mine.end; ++i)
    b_.experts_.in.copy(mixture.formats, groups().place(static_cast<size_t>(i)), input(), i / b_.n_choices_of_row(),
                        b_.d_model_);
  b_.team_.barrier();
}

// Calls work(group, outputs) for pieces of this matrix of every network that has rows: as if the outputs lay one after
// another, each network's from a multiple of the grain on.
template <class Work>
void CpuBlock::Thread::divide_experts(const Mixture& mixture, const Linear FeedForward::*matrix, Work&& work) {
  const auto n_out = [&](const ExpertGroups::Group& group) {
    return (mixture.networks[static_cast<size_t>(group.network)].*matrix).n_out();
  };
  const auto room = [&](const auto& group) {
    return (n_out(group) + Linear::kGrain - 1) / Linear::kGrain * Linear::kGrain;
  };
  int64_t all = 0;
  for (const auto& group : groups().groups()) all += room(group);
  divide_outputs(all, [&](Part outputs) {
    for (const auto& group : groups().groups()) {
      const Part own{std::max<int64_t>(outputs.begin, 0), std::min(outputs.end, n_out(group))};
      if (!own.empty()) work(group, own);
      outputs = {outputs.begin - room(group), outputs.end - room(group)};
    }
  });
  done();
}

void CpuBlock::Thread::gate_experts(const Layer& layer) {
  const Mixture& mixture = *layer.mixture;
  const int64_t width = b_.expert_width();
  divide_experts(mixture, &FeedForward::gate, [&](const auto& group, Part outputs) {
    gate(mixture.networks[static_cast<size_t>(group.network)], b_.experts_.in, group.places, outputs, width);
  });
  const Part mine = own_choices();
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    const int32_t network = choices()[static_cast<size_t>(i)].network;
    const int64_t place = groups().place(static_cast<size_t>(i));
    const auto n = static_cast<size_t>(mixture.networks[static_cast<size_t>(network)].down.n_in());
    down_input(mixture, network).store(layer.down_formats, place, {b_.gate_.as<float>() + place * width, n});
  }
  b_.team_.barrier();
}

void CpuBlock::Thread::add_experts(const Layer& layer, float* x) {
  const Mixture& mixture = *layer.mixture;
  const int64_t d = b_.d_model_, n = b_.n_choices_of_row();
  float* const out = b_.experts_.out.as<float>();
  divide_experts(mixture, &FeedForward::down, [&](const auto& group, Part outputs) {
    mixture.networks[static_cast<size_t>(group.network)].down.multiply(down_input(mixture, group.network), group.places,
                                                                       outputs, {out, d});
  });
  std::vector<float>& sum = b_.normed_[static_cast<size_t>(thread_)];
  const Part mine = rows();
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    std::ranges::fill(sum, 0.0f);
    for (int64_t k = i * n; k < (i + 1) * n; ++k) {
      const float weight = choices()[static_cast<size_t>(k)].weight;
      const float* const y = out + groups().place(static_cast<size_t>(k)) * d;
      for (int64_t j = 0; j < d; ++j) sum[static_cast<size_t>(j)] += weight * y[j];
    }
    if (mixture.beside_dense) {
      const float* const dense = b_.product_.as<float>() + i * d;
      b_.kernels_.rms_norm(sum.data(), mixture.beside_dense->experts_post.data(), d, b_.norm_epsilon_, sum.data());
      for (int64_t j = 0; j < d; ++j) sum[static_cast<size_t>(j)] += dense[j];
      b_.kernels_.rms_norm(sum.data(), layer.ffn_post_norm.data(), d, b_.norm_epsilon_, sum.data());
    }
    for (int64_t j = 0; j < d; ++j) x[i * d + j] += sum[static_cast<size_t>(j)];
  }
  own_rows_written();
}

}  // namespace sluice
