// Methods that hold the same conversations in one process, in turn and in changing order, so that a machine that grows
// slower or faster favours none: what bench/concurrency measures with.
//
//   sluice_alternate [-m FILE] --prompts FILE --concurrency N [--methods ar,specpipe,surge] [--tokens N]
//                    [--seconds SECONDS] [--others PART] [--change PART] [--first K] [--threads N]
//
// FILE has a message a line; N of them at a time are in flight, on one engine that goes on from group to group and from
// method to method, as a server's does: so what it learns of passes, and where its weights and cells lie in memory,
// which changes its speed by some per cent, is the same for all of them. Measured is from when all have their first
// token until one has its last; the first group of conversations only warms the engine up, and the others come in
// pairs, there and back. In each group the first method has a turn before the others and one after them. A group is
// void and comes again where other processes took more than --others of the processors' time in one of its turns, or
// these two differ by more than --change (some machines have two speeds, for ten seconds each). Prints one JSON object:
// of each method the tokens and the seconds, what entered as guesses and came true, the batches, the coordinator's CPU
// seconds, and how many groups were void.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "session/installation.h"
#include "session/session.h"

namespace {

using namespace sluice;
using Clock = std::chrono::steady_clock;

constexpr int32_t kMostVoid = 100;  // groups that others disturb
constexpr double kShortTurn = 1.0;  // seconds, of turns that differ by more than the machine's speed does

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What a method has done.
struct Sums {
  int64_t tokens = 0, guesses = 0, right = 0, batches = 0;  // right: guesses that came true
  double seconds = 0, coordinator_seconds = 0;

  double speed() const { return static_cast<double>(tokens) / seconds; }

  Sums& operator+=(const Sums& more) {
    tokens += more.tokens;
    guesses += more.guesses;
    right += more.right;
    batches += more.batches;
    seconds += more.seconds;
    coordinator_seconds += more.coordinator_seconds;
    return *this;
  }
};

// What other processes, and the machine's other guests, take of its processors. Linux only.
class Others {
 public:
  Others() : start_(Clock::now()), busy_(busy()), own_(own()) {}

  // Since this was made, of the time of all processors; what the kernel's ticks round is not counted.
  double part() const {
    const double round = 2.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
    const double others = (busy() - busy_) - (own() - own_) - round;
    return others / (seconds_since(start_) * std::thread::hardware_concurrency());
  }

 private:
  // Seconds that processors have not been idle.
  static double busy() {
    std::ifstream file("/proc/stat");
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft_irq = 0, steal = 0;
    file >> name >> user >> nice >> system >> idle >> wait >> irq >> soft_irq >> steal;
    return (user + nice + system + irq + soft_irq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  static double own() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

  Clock::time_point start_;
  double busy_, own_;
};

// Conversations at a time by one method.
class Talks {
 public:
  Talks(std::string method, Engine& engine) : method_(std::move(method)), engine_(&engine) {}

  Status begin(const Session& session, std::span<const std::string> messages) {
    sums_ = {.batches = -engine_->batches(), .coordinator_seconds = -engine_->coordinator_seconds()};
    ended_ = false;
    for (const std::string& message : messages) {
      SLUICE_TRY(auto prompt, session.encode({{"user", message}}));
      SLUICE_TRY(const auto request, engine_->submit(session.spec(std::move(prompt), method_)));
      requests_.push_back(request);
    }
    const auto silent = [&](RequestId request) { return engine_->request(request).n_answer() == 0; };
    while (!ended_ && std::any_of(requests_.begin(), requests_.end(), silent))
      SLUICE_TRY_STATUS(step().map([](auto) {}));
    return {};
  }

  // Until one of them ends.
  Status go_on() {
    const auto start = Clock::now();
    while (!ended_) {
      SLUICE_TRY(const int64_t more, step());
      sums_.tokens += more;
    }
    sums_.seconds += seconds_since(start);
    return {};
  }

  // What came of them; what is left of them is dropped.
  Result<Sums> end() {
    for (const RequestId request : requests_) {
      sums_.guesses += engine_->request(request).stats.drafted;
      sums_.right += engine_->request(request).stats.accepted;
      engine_->cancel(request);
    }
    sums_.batches += engine_->batches();
    sums_.coordinator_seconds += engine_->coordinator_seconds();
    while (engine_->busy()) SLUICE_TRY_STATUS(step().map([](auto) {}));
    for (const RequestId request : requests_) engine_->release(request);
    requests_.clear();
    return sums_;
  }

 private:
  Result<int64_t> step() {
    SLUICE_TRY(const auto progress, engine_->step());
    int64_t n = 0;
    for (const Progress& news : progress) {
      n += static_cast<int64_t>(news.tokens.size());
      ended_ = ended_ || news.finish != Finish::kNone;
    }
    return n;
  }

  std::string method_;
  Engine* engine_;
  std::vector<RequestId> requests_;
  Sums sums_;
  bool ended_ = false;  // one of them has
};

struct Options {
  SessionOptions session;
  std::string prompts;
  std::vector<std::string> methods = {"ar", "specpipe", "surge"};
  int32_t concurrency = 1;
  size_t first = 0;    // of the methods beside the first, which begins
  double seconds = 2;  // of each method at least
  double others = 1;   // may take so much of the processors' time
  double change = 1;   // of the first method's speed, a log, that is still the machine as it was
};

// The same conversations by one method after another, between two turns of the first. Gives whether the machine was
// left alone meanwhile, and its speed stayed the same.
Result<bool> hold(const Options& options, const Session& session, std::span<const std::string> messages, size_t group,
                  std::vector<Talks>& talks, std::vector<Sums>& sums) {
  bool alone = true;
  const auto turn = [&](size_t method) -> Result<Sums> {
    SLUICE_TRY_STATUS(talks[method].begin(session, messages));
    const Others around;
    SLUICE_TRY_STATUS(talks[method].go_on());
    alone = alone && around.part() <= options.others;
    return talks[method].end();
  };
  const size_t n = talks.size() - 1;  // methods beside the first
  SLUICE_TRY(const Sums before, turn(0));
  for (size_t i = 0; i < n; ++i) {
    const size_t method = 1 + ((group % 2 == 0 ? i : n - 1 - i) + options.first + group / 2) % n;
    SLUICE_TRY(sums[method], turn(method));
  }
  SLUICE_TRY(const Sums after, turn(0));
  sums[0] += before;
  sums[0] += after;
  const double change = std::abs(std::log(before.speed() / after.speed()));
  return alone && (std::min(before.seconds, after.seconds) < kShortTurn || change <= options.change);
}

Result<nlohmann::json> run(const Options& options) {
  std::vector<std::string> messages;
  std::ifstream file(options.prompts);
  for (std::string line; std::getline(file, line);) messages.push_back(line);
  const auto n = static_cast<size_t>(options.concurrency);
  if (messages.size() < n) return input_error(options.prompts + " has fewer lines than --concurrency says");

  SLUICE_TRY(const Session session, Session::open(options.session, Heads::kGiven, options.methods));
  SLUICE_TRY(const auto engine, session.make_engine(options.methods.back(), options.concurrency));
  std::vector<Talks> talks;
  for (const std::string& method : options.methods) talks.emplace_back(method, *engine);
  std::vector<Sums> sums(talks.size());
  const auto too_little = [&](const Sums& each) { return each.seconds < options.seconds; };
  int32_t n_void = 0;
  int32_t counted = -1;  // groups: of the first pages come, and is learnt what passes take
  for (size_t group = 0; counted % 2 != 0 || std::ranges::any_of(sums, too_little); ++group) {
    std::vector<Sums> more(sums.size());
    const size_t begin = group * n % (messages.size() - n + 1);
    SLUICE_TRY(const bool good, hold(options, session, std::span(messages).subspan(begin, n), group, talks, more));
    if (!good) {
      if (++n_void > kMostVoid) return input_error("others never leave this machine alone, or its speed never stays");
      continue;
    }
    if (++counted == 0) continue;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
  }
  nlohmann::json out = {{"void", n_void}};
  for (size_t i = 0; i < sums.size(); ++i)
    out["methods"][options.methods[i]] = {
        {"tokens", sums[i].tokens}, {"seconds", sums[i].seconds}, {"guesses", sums[i].guesses},
        {"right", sums[i].right},   {"batches", sums[i].batches}, {"coordinator_seconds", sums[i].coordinator_seconds}};
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Methods in turn on the same conversations"};
  Options options;
  options.session.context = 512;
  options.session.request.max_tokens = 128;
  options.session.request.ignore_end = true;
  app.add_option("-m,--model", options.session.model, "GGUF file");
  app.add_option("--threads", options.session.threads, "CPU threads");
  app.add_option("--tokens", options.session.request.max_tokens, "tokens an answer")->capture_default_str();
  app.add_option("--prompts", options.prompts, "a message a line")->required();
  app.add_option("--methods", options.methods, "of these")->delimiter(',')->capture_default_str();
  app.add_option("--concurrency", options.concurrency, "conversations at a time")->capture_default_str();
  app.add_option("--first", options.first, "which of the methods beside the first begins")->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each method at least")->capture_default_str();
  app.add_option("--others", options.others, "part of the processors' time that others may take")
      ->capture_default_str();
  app.add_option("--change", options.change, "by which the first method's two turns may differ")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto out = run(options);
  if (!out) return std::fprintf(stderr, "%s\n", out.error().message.c_str()), 2;
  std::printf("%s\n", out->dump().c_str());
  return 0;
}
