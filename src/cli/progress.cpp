#include "cli/progress.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "cli/interrupt.h"
#include "wire/weights.h"

namespace sluice {

namespace {

using Clock = std::chrono::steady_clock;

std::string minutes(double seconds) {
  const int whole = static_cast<int>(seconds + 0.5);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

ProgressBar::ProgressBar(std::string what, double begin)
    : what_(std::move(what)),
      begin_share_(begin),
      terminal_(isatty(STDERR_FILENO) != 0),
      begin_(Clock::now()),
      shown_(begin_) {}

void ProgressBar::show(double share, const std::string& note) {
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - shown_).count();
  if (since < (terminal_ ? 0.1 : 10.0) && share < 1.0) return;
  shown_ = now;
  const double spent = std::chrono::duration<double>(now - begin_).count();
  const double done = share - begin_share_;
  const std::string left = done > 0.01 * (1.0 - begin_share_) ? minutes(spent * (1.0 - share) / done) + " left" : "";
  constexpr int kWidth = 30;
  const int full = static_cast<int>(share * kWidth);
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < full ? "█" : "░";
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s %s %3.0f %%  %s  %s", what_.c_str(), bar.c_str(), share * 100, left.c_str(),
                 note.c_str());
  } else {
    std::fprintf(stderr, "%s: %.0f %%, %s  %s\n", what_.c_str(), share * 100, left.c_str(), note.c_str());
  }
  std::fflush(stderr);
}

void ProgressBar::finish() {
  if (terminal_) std::fputs("\r\033[K", stderr);
}

OnDownload show_downloads() {
  return [bar = std::shared_ptr<ProgressBar>(), shown = std::string()](const std::string& file, uint64_t bytes,
                                                                       uint64_t all) mutable {
    const double share = all == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(all);
    if (std::exchange(shown, file) != file) bar = std::make_shared<ProgressBar>("fetching " + file, share);
    bar->show(share,
              fmt::format("{:.0f} of {:.0f} MB", static_cast<double>(bytes) / 1e6, static_cast<double>(all) / 1e6));
    if (bytes >= all) bar->finish();
    return !interrupted();
  };
}

std::function<bool(uint64_t, uint64_t)> show_sending() {
  return [bar = std::shared_ptr<ProgressBar>()](uint64_t sent, uint64_t all) mutable {
    if (!bar) bar = std::make_shared<ProgressBar>("sending weights to hosts");
    bar->show(static_cast<double>(sent) / static_cast<double>(all),
              fmt::format("{} of {} MB", sent * kWeightBlockBytes / 1'000'000, all * kWeightBlockBytes / 1'000'000));
    if (sent == all) {
      bar->finish();
      bar.reset();
    }
    return !interrupted();
  };
}

}  // namespace sluice
