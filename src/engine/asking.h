// Whether it pays to ask sources that answer at once.
#pragma once

#include <cstdint>

namespace sluice {

// Asking takes time of the coordinator's, in which the first stage waits. Told from what the questions of late took and
// what came of them.
class Asking {
 public:
  // To be called once for each batch.
  bool pays();
  // After it was asked: what that took, and what the guesses that entered save.
  void learn(double seconds, double saved);

 private:
  double seconds_ = 0.0, saved_ = 0.0;  // running averages
  int64_t n_ = 0, passed_over_ = 0;     // batches for which was asked, and since then not
};

}  // namespace sluice
