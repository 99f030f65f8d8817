// What a row costs all requests that share the target's batches, and what it saves them: which guesses pay.
#pragma once

#include <cstddef>
#include <span>

#include "engine/request.h"
#include "engine/room.h"

namespace sluice {

class Price {
 public:
  // Of the requests that run now. REQUIRES: the room outlives this.
  Price(std::span<Request* const> requests, const Room& target);

  // The time between tokens of all requests together: what a guess saves, at the most, that is right for sure.
  double seconds_per_token() const { return seconds_per_token_; }

  // The log of the least probability with which a guess can pay beside the rows that enter `anyway`, in a batch of
  // `most` rows or less; -infinity: any can.
  double floor(size_t anyway, size_t most) const;

  // How many guesses should enter beside the rows that enter `anyway`.
  // chances: the probabilities with which they are of use, falling.
  size_t worthwhile(size_t anyway, std::span<const double> chances) const;

  // Seconds that guesses of these chances save who waits, less what they add to the pass.
  double saved(size_t anyway, std::span<const double> chances) const;

 private:
  size_t abreast(size_t anyway, std::span<const double> chances) const;
  double gain(size_t anyway) const;
  double passes(double verdict, bool widest) const;
  size_t covered(size_t anyway, size_t more) const;
  size_t known(size_t anyway, size_t n_covered, size_t more) const;
  static double verdict(size_t anyway, std::span<const double> chances);

  size_t n_requests_;
  const Room& room_;
  bool fills_ = false;  // a method fills the pipeline
  double seconds_per_token_ = 0.0;
};

}  // namespace sluice
