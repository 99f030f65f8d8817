// The operations of compute/block.h on this machine's processors: a team of threads goes through them together.
//
// Exactness: what comes of a row depends on its input and on its path alone, to the last bit. Threads split rows, heads
// and outputs, never a sum.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "compute/attention.h"
#include "compute/folded_states.h"
#include "compute/kernels/kernels.h"
#include "compute/layer.h"
#include "compute/linear.h"
#include "compute/memory.h"
#include "compute/paths.h"
#include "compute/rope.h"
#include "compute/thread_team.h"
#include "model/model_file.h"

namespace sluice {

// Matrices are [rows, width], rows one after another. Thread safety: none; one thread calls it, and its team works.
class CpuBlock {
 public:
  // Of a model with these layers; cells 0 … n_cells - 1 may be used. More rows than max_rows take their memory when
  // they come.
  CpuBlock(const HyperParameters& hparams, std::span<const float> rope_factors, int32_t n_cells, int32_t max_rows,
           int32_t threads);

  ThreadTeam& team() { return team_; }
  // Of layers that see everything, or a window.
  const AttentionShape& shape(bool has_window = false) const { return shapes_[kind(has_window)]; }
  int64_t max_rows() const { return max_rows_; }

  // Makes room for inputs of products, n_in values wide, in these formats.
  void reserve(FormatSet formats, int64_t n_in);
  void reserve(const Layer& layer);
  void reserve(const PerLayerEmbedding& embedding);

  // The rows at hand: of a layer; or so many of nothing but products, at most max_rows. `rows` must stay, and so must
  // what layers without attention know of them, if there are any.
  void begin(std::span<const BlockRow> rows, const FoldedStates* states = nullptr);
  void begin(int64_t n_rows);

  // Of the rows at hand, where another has projected them: what a gated delta net's products gave goes here, [rows,
  // projected_width], and what its rows attend to is found there, [rows, value_width].
  std::span<float> delta_projections() {
    return {deltas_.projected.as<float>(), static_cast<size_t>(n_rows_ * deltas_.stride)};
  }
  std::span<const float> delta_attended() const {
    return {attended_.as<float>(), static_cast<size_t>(n_rows_ * delta_.value_width())};
  }

  // One thread's way through the operations. All threads call the same ones in the same order, and each operation
  // returns when the next one may read what it has left.
  class Thread {
   public:
    Thread(CpuBlock& block, int thread) : b_(block), thread_(thread) {}

    // Its own of the rows, in what isn't an operation.
    Part rows() const { return part_of(b_.n_rows_, 1, thread_, b_.team_.size()); }
    // After each thread has written its own rows, unless an operation comes that reads no others.
    void own_rows_written() {
      if (b_.inputs_are_own()) b_.team_.barrier();
    }
    // The angles by which its own rows are turned. REQUIRES: called before the first layer.
    void find_angles();

    // What tokens give each layer, until the next rows. states: [rows, d_model], those that `batch` begins with, of
    // which this thread has written its own. REQUIRES: as find_angles(), and reserve(embedding).
    void find_layer_inputs(const PerLayerEmbedding& embedding, std::span<const Row> batch, const float* states);

    // The input of the next products becomes x: [rows, width], normed or as it is.
    void normalise(const float* x, const std::vector<float>& weight, FormatSet formats);
    void take(const float* x, int64_t width, FormatSet formats);

    void project(const Layer& layer);
    void project_keys_and_values(const Layer& layer);
    void turn_and_keep(Layer& layer);
    void turn_and_keep_keys(Layer& layer);
    void attend(const Layer& layer);
    void add_attended(const Layer& layer, float* x);
    void gate(const Layer& layer);
    void add_gated(const Layer& layer, float* x);
    void add_mixture(const Layer& layer, float* x);
    // What compute/per_layer_embedding.h says, and the layer's scale.
    void finish(const Layer& layer, float* x);
    // Of a gated delta net, turn_and_keep() and attend().
    void convolve(const DeltaNet& delta);
    void fold(const DeltaNet& delta);
    // y = input W^T, or with a cap what comes of it by HyperParameters::logit_cap. y: [rows, n_out]. Is the last
    // operation of a region.
    void product(const Linear& weight, float* y, float cap = 0.0f);

   private:
    struct Product {
      const Linear* weight;
      float* y;
      int64_t stride;  // from one row's to the next's
    };
    void project(std::initializer_list<Product> products);
    void project(const LatentAttention& latent);
    void turn_and_keep(const LatentAttention& latent, Layer& layer);
    void make_values(const LatentAttention& latent);
    void take_queries_out(int64_t row);
    void gate_attended(Part rows, Part heads);
    void project(const DeltaNet& delta);
    void convolve(const DeltaNet& delta, int64_t row, int64_t head);
    void fold(const DeltaNet& delta, const FoldedStates::Work& work, int64_t head);
    void fold_row(const DeltaNet& delta, const FoldedStates::Step& step, int64_t head, int64_t key_head,
                  const float* from, float* to);
    void move_tail(const DeltaNet& delta, const FoldedStates::Work& work);
    const float* convolved_input(const DeltaNet& delta, FoldedStates::Input input, const float* tail) const;
    void route(const Mixture& mixture);
    void fetch(const Mixture& mixture);
    void gather(const Mixture& mixture);
    void compute_dense(const Layer& layer);
    void gate_experts(const Layer& layer);
    void add_experts(const Layer& layer, float* x);
    template <class Work>
    void divide_experts(const Mixture& mixture, const Linear FeedForward::*matrix, Work&& work);
    void gate(const FeedForward& network, const LinearInput& x, Part rows, Part outputs, int64_t width);
    void add_product(const Linear& weight, const std::vector<float>& norm, float* x);
    void turn(const Layer& layer, int64_t row, float* heads, int32_t n, const std::vector<float>& norm) const;
    // Of the rows' choices those that are this thread's to move.
    Part own_choices() const { return part_of(std::ssize(choices()), 1, thread_, b_.team_.size()); }
    std::span<const ChosenExpert> choices() const {
      return std::span(b_.experts_.choices).first(static_cast<size_t>(b_.n_rows_ * b_.n_choices_of_row()));
    }
    ExpertGroups& groups() const { return b_.experts_.groups[static_cast<size_t>(thread_)]; }
    LinearInput& down_input(const Mixture& mixture, int32_t network) const {
      return mixture.is_shared(network) ? b_.experts_.of_shared_down : b_.experts_.of_down;
    }
    LinearInput& input() const { return b_.inputs_[b_.inputs_are_own() ? static_cast<size_t>(thread_) : 0]; }
    Part input_rows() const { return b_.inputs_are_own() ? Part{0, b_.n_rows_} : rows(); }
    void input_written() {
      if (!b_.inputs_are_own()) b_.team_.barrier();
    }
    // Calls work(part) for pieces of [0, n) until the team has done them all.
    template <class Work>
    void divide(int64_t n, int64_t grain, Work&& work);
    // The same for the outputs of a product.
    template <class Work>
    void divide_outputs(int64_t n, Work&& work);
    // Calls work(head, outputs) for pieces of a product of every head, n_out wide each.
    template <class Work>
    void divide_heads(int64_t n_out, Work&& work);
    void done();

    CpuBlock& b_;
    int thread_;
    size_t n_done_ = 0;  // divided operations
  };

  // Calls work(thread) on every thread of the team.
  template <class Work>
  void run(Work&& work) {
    for (Pieces& pieces : pieces_) pieces.restart();
    team_.run([&](int thread) {
      Thread one(*this, thread);
      work(one);
    });
  }

 private:
  // Of few rows each thread makes an input of its own: that takes less time than to wait for the others.
  static constexpr int64_t kOwnInputRows = 2;
  bool inputs_are_own() const { return n_rows_ <= kOwnInputRows; }

  // Many pieces leave little to wait for, but a thread that begins one waits for memory; more rows hide that.
  int64_t n_pieces() const {
    constexpr int64_t kMostEach = 8;
    return team_.size() == 1 ? 1 : std::clamp<int64_t>(n_rows_ / 4, 1, kMostEach) * team_.size();
  }
  size_t kind(bool has_window) const { return has_window ? shapes_.size() - 1 : 0; }
  const AttentionShape& shape_of(const Layer& layer) const { return shape(layer.window > 0); }
  // The widest that `width` says of the shapes.
  template <class Width>
  int64_t widest(Width width) const {
    int64_t most = 0;
    for (const AttentionShape& shape : shapes_) most = std::max<int64_t>(most, (shape.*width)());
    return most;
  }
  int64_t n_choices_of_row() const { return mixture_.n_used + (mixture_.d_shared > 0 ? 1 : 0); }
  int64_t expert_width() const { return std::max(mixture_.d_ff, mixture_.d_shared); }
  int64_t delta_heads() const { return 2 * delta_.n_key_heads + delta_.n_value_heads; }
  void make_room(int64_t rows);
  void reserve_for_experts();
  void reserve_for_latents();
  void reserve_for_delta_nets();
  void find_tiles();

  const kernels::Kernels& kernels_ = kernels::kernels();
  int64_t d_model_, d_ff_, d_per_layer_;  // d_ff: of the widest layer
  MixtureParameters mixture_;
  LatentParameters latent_;
  DeltaNetParameters delta_;
  bool gated_attention_;
  void (*activate_)(float* gate, const float* up, int64_t n);
  bool has_post_norms_ = false;  // of some layer
  float norm_epsilon_;
  // Of layers that see everything, and of those with a window, if they have other heads or turn otherwise.
  std::vector<AttentionShape> shapes_;
  std::vector<Rope> ropes_;
  ThreadTeam team_;
  std::vector<std::pair<FormatSet, int64_t>> reserved_;
  int64_t max_rows_ = 0;

  // Of the rows at hand.
  int64_t n_rows_ = 0;
  std::span<const BlockRow> rows_;
  const FoldedStates* states_ = nullptr;
  struct Tile {
    Part rows;       // that go through attention together
    int64_t shared;  // positions that they have in common
  };
  std::vector<Tile> tiles_;
  std::vector<LinearInput> inputs_;         // [thread], the first with room for max_rows, the others for few
  Memory qkv_;                              // [rows, qkv_width of the layer's shape]: queries, keys, values
  Memory attended_;                         // [rows, attended_width, likewise]
  Memory gate_, up_;                        // [rows, the layer's d_ff]
  int64_t per_layer_width_ = 0;             // PerLayerEmbedding::stage_width
  Memory per_layer_;                        // [rows, per_layer_width]: what tokens give each layer
  Memory product_;                          // [rows, d_model], of layers with a norm behind their products
  std::vector<Memory> angles_;              // as ropes_: [rows, rope size]
  std::vector<std::vector<float>> normed_;  // [thread][d_model]
  struct ExpertRows {
    Memory logits;                         // [rows, experts, and one for the shared expert]
    std::vector<ChosenExpert> choices;     // [rows, n_choices_of_row]
    std::vector<std::vector<float>> room;  // [thread][experts]
    std::vector<ExpertGroups> groups;      // [thread], all alike
    LinearInput in{0}, of_down{0}, of_shared_down{0};
    FormatSet in_formats, down_formats;
    Memory out;  // [places, d_model]
  };
  ExpertRows experts_;  // of a model with experts
  struct LatentRows {
    int64_t query = 0, first = 0;  // widths: of a head's query, and of what is projected from the states first
    Memory projected;              // [rows, first + rank + turned]: q_a's or queries, then the latent
    Memory queries;                // [rows, heads * query], behind q_a
    Memory values;                 // [rows, heads * value]
    std::vector<LinearInput> of_k_b, of_v_b;  // [head]
    FormatSet k_b_formats, v_b_formats;
  };
  LatentRows latents_;    // of a model with latent attention
  Memory gated_queries_;  // [rows, heads * 2 * head_dim], of a model whose queries come with gates
  struct DeltaRows {
    int64_t stride = 0;                   // of `projected`: DeltaNetParameters::projected_width
    Memory projected;                     // [rows, stride]
    Memory convolved;                     // [rows, mixed_width]: queries, keys, values
    std::vector<float> zeros;             // [head_dim, head_dim], or what a tap that is not there reads
    std::vector<float> of_query, of_key;  // [head_dim]: the weights of their norms
    std::vector<Memory> copies;           // [thread]: states on the way, then [2][head_dim]
  };
  DeltaRows deltas_;                       // of a model with gated delta nets
  std::vector<AttentionScratch> scratch_;  // [thread]

  // How far the operations have got that threads take piece by piece: those of operation n, n + kRing, … in one place,
  // made ready while the operation half a ring before is over for all.
  static constexpr size_t kRing = 8;
  std::array<Pieces, kRing> pieces_;
};

template <class Work>
void CpuBlock::Thread::divide(int64_t n, int64_t grain, Work&& work) {
  Pieces& pieces = b_.pieces_[n_done_ % kRing];
  const auto next = [&] { return pieces.take(n, grain, b_.n_pieces()); };
  for (Part part = next(); !part.empty(); part = next()) work(part);
}

template <class Work>
void CpuBlock::Thread::divide_outputs(int64_t n, Work&& work) {
  const int64_t groups = b_.n_rows_ < kernels::kRowsForTwoGroups ? 1 : 2;
  divide(n, groups * Linear::kGrain, work);
}

template <class Work>
void CpuBlock::Thread::divide_heads(int64_t n_out, Work&& work) {
  const int64_t room = (n_out + Linear::kGrain - 1) / Linear::kGrain * Linear::kGrain;
  divide_outputs(b_.shape().n_heads * room, [&](Part outputs) {
    for (int64_t head = outputs.begin / room; head * room < outputs.end; ++head) {
      const Part own{std::max<int64_t>(outputs.begin - head * room, 0), std::min(outputs.end - head * room, n_out)};
      if (!own.empty()) work(static_cast<size_t>(head), own);
    }
  });
  done();
}

}  // namespace sluice
