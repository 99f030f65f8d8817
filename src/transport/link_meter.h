// How long frames occupy the link that they come by, from what two hosts can say without comparing their clocks.
//
// The sender says how long after the one before it handed each frame over; the receiver sees how long after the one
// before each has come. Added up, the differences are the time that each frame took, but for a constant that all
// share: the offset of the clocks and the shortest way. A link works on one frame at a time, so it worked on a frame
// from when that was there, or the one before was through, until it came. What of this grows with the frame's bytes is
// occupancy; the rest, jitter among it, costs latency alone. So occupancy is the slope of a line through (bytes,
// seconds of work), if it is larger than the doubt about it.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

namespace sluice {

// Of who sends: seconds since the one before, 0 for the first.
class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const auto before = std::exchange(last_, now);
    return before ? std::chrono::duration<double>(now - *before).count() : 0.0;
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> last_;
};

class LinkMeter {
 public:
  // A frame of so many bytes, handed over `after` seconds after the one before, on the sender's clock; it came at the
  // time `came`, on the receiver's.
  void saw(double bytes, double after, double came);

  double seconds_per_byte() const;

 private:
  static constexpr double kNewest = 1.0 / 128;  // of the sums
  // Of a way that was shorter than any since, for clocks drift; faster, short frames would be measured against a
  // shorter way than long ones, and bytes look cheaper than they are.
  static constexpr double kForgets = 1.0 / 512;

  double sent_ = 0;                         // by the sender's clock, from its first frame
  std::optional<double> first_;             // when that came
  double last_ = 0;                         // when the one before came, from then
  double least_ = 0;                        // of the frames' times on their way, beside the constant
  double n_ = 0, bytes_ = 0, seconds_ = 0;  // frames that count, means
  double bytes_bytes_ = 0, bytes_seconds_ = 0, seconds_seconds_ = 0;  // means of products of deviations
};

}  // namespace sluice
