// What a pass through a stage takes by its rows, learnt from passes.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

namespace sluice {

class PassTimes {
 public:
  // A stage has computed so many rows in so many seconds.
  void saw(int32_t rows, double seconds);

  // So many rows of another sort, prompts', took so long. As long as only one width is known this says what rows
  // beyond it cost; of several the one whose rows were cheapest counts.
  void saw_others(int32_t rows, double seconds);

  // Widths up to 8 rows are told apart, beyond them four kinds an octave. Of a kind that was seen less than three times
  // the shortest pass counts, then their median, then a running average; and as far as passes of one kind differ it is
  // drawn to a line through the kinds of an octave to either side, for the price of a row is a small difference of such
  // times. What slows all passes, whatever their width, for a while (others use the machine, its clock changes) is told
  // apart from what a width costs: else the widths seen in that while would look dear beside the others.
  //
  // Between kinds on a line; beyond the widest rising as on average before it, or towards what others took; of the
  // narrowest its share, so that a width is tried before it is thought too dear; 0 as long as nothing is known. A kind
  // that was seen less than three times, or not for long, is from while to while thought a little more like those
  // beside it if they are cheaper, and so tried again: what looks dear is not chosen, and one pass that something else
  // held up would banish it for good.
  double seconds(int32_t rows) const { return pace_ * usual(rows, at_least(rows), &Kind::smooth); }

  // Of the widths that are known; 0 if there is none.
  int32_t narrowest() const { return seen_.empty() ? 0 : static_cast<int32_t>(seen_.front().rows); }
  int32_t widest() const { return seen_.empty() ? 0 : static_cast<int32_t>(seen_.back().rows); }

  // How many rows beyond the first `base` pay: the number from 0 to gains.size() at which the sum of the first gains,
  // each worth `seconds_per_gain`, exceeds by most what their rows add to the pass; 0 if it does not exceed it by more
  // than passes of the same rows differ. Where `base` is 0 the first row's time is not asked for, and it counts at
  // least. What pays little is left out from while to while, to see again what a pass takes without it.
  // gains: falling.
  size_t best_addition(int32_t base, std::span<const double> gains, double seconds_per_gain) const;

  // What is wider than anything that was seen is tried step by step: the widest that may be. The step is small beside
  // the rows that are there as long as nothing is known of what more of them cost.
  int32_t widest_try() const;

  // Seconds that a row beyond the first `base` costs at least, on average of any number of them up to `most` rows in
  // all: no row that saves less can pay.
  double least_price(int32_t base, int32_t most) const;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  struct Pass {
    double seconds = 0.0;
    double rows = 0.0;
    auto operator<=>(const Pass&) const = default;
  };
  struct Kind {
    int32_t widest = 0;
    std::array<Pass, 3> first{};  // at the usual pace, like all below
    int64_t n = 0;
    int64_t seen_at = 0;     // the newest pass
    int64_t doubted_at = 0;  // a pass
    double rows = 0.0;       // so many rows
    double seconds = 0.0;    // take so many seconds,
    double smooth = 0.0;     // or these, with those beside it
    bool sure() const { return n >= std::ssize(first); }
    void take(Pass pass, int64_t now);
    void wait(int64_t now);
    void forget();
  };
  using Kinds = std::vector<Kind>;
  Kinds::const_iterator by_widest(int32_t widest) const;
  Kinds::const_iterator at_least(int32_t rows) const;
  Kinds::const_iterator beyond(double rows) const;
  double usual(int32_t rows, Kinds::const_iterator above, double Kind::*time) const;
  double error(const Kind& kind) const;
  bool stale(int32_t rows) const;
  void learn_noise(double change);
  void doubt();
  double without(size_t kind) const;
  double rise(double Kind::*time) const;
  void smooth_around(double rows);
  double smoothed(const Kind& kind) const;
  double on_line(double rows) const;

  Kinds seen_;   // by rows, rising
  Pass others_;  // the cheapest
  int64_t passes_ = 0;
  int64_t next_doubt_ = kNever;  // at the earliest, of any kind
  double pace_ = 1.0;            // what passes take now, of the usual
  double noise_ = 0.0;           // how far a pass is from that, on average
  int64_t n_noise_ = 0;          // of so many passes
};

}  // namespace sluice
