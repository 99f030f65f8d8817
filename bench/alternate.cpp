// Methods that hold the same conversations in one process, in turn for a fraction of a second each, so that a machine
// that grows slower or faster for seconds favours none: what bench/concurrency measures with.
//
//   sluice_alternate [-m FILE] --prompts FILE --concurrency N [--methods ar,specpipe,surge] [--tokens N]
//                    [--seconds SECONDS] [--slice SECONDS] [--others PART] [--first K] [--threads N]
//
// FILE has a message a line; N of them at a time are in flight by each method, on an engine made for them: where its
// weights and cells come to lie in memory changes its speed by some per cent. Measured is from when all have their
// first token until one has its last. While one engine has its turn the others stand still: before a turn the batch
// that was under way when the engine's last one ended is taken in, uncounted, and after it the one under way is waited
// for. A group of conversations is void and comes again where other processes took more than --others of the
// processors' time. Prints one JSON object: of each method the tokens and the seconds, what entered as guesses, the
// batches, the coordinator's CPU seconds, and how many groups were void.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
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

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What a method has done.
struct Sums {
  int64_t tokens = 0, guesses = 0, batches = 0;
  double seconds = 0, coordinator_seconds = 0;

  Sums& operator+=(const Sums& more) {
    tokens += more.tokens;
    guesses += more.guesses;
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

  // Since this was made, of the time of all processors.
  double part() const {
    const double others = (busy() - busy_) - (own() - own_);
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
  explicit Talks(Engine& engine) : engine_(engine) {}

  Status begin(const Session& session, const std::string& method, std::span<const std::string> messages) {
    for (const std::string& message : messages) {
      SLUICE_TRY(auto prompt, session.encode({{"user", message}}));
      SLUICE_TRY(const auto request, engine_.submit(session.spec(std::move(prompt), method)));
      requests_.push_back(request);
    }
    const auto silent = [&](RequestId request) { return engine_.request(request).n_answer() == 0; };
    while (!ended_ && std::any_of(requests_.begin(), requests_.end(), silent))
      SLUICE_TRY_STATUS(step().map([](auto) {}));
    return {};
  }

  bool ended() const { return ended_; }

  // For so long, or until one of them ends.
  Status go_on(double seconds) {
    SLUICE_TRY_STATUS(step().map([](auto) {}));
    const auto start = Clock::now();
    while (!ended_ && seconds_since(start) < seconds) {
      const auto before = Clock::now();
      SLUICE_TRY(const int64_t more, step());
      sums_.tokens += more;
      longest_ = std::max(longest_, seconds_since(before));
    }
    sums_.seconds += seconds_since(start);
    std::this_thread::sleep_for(std::chrono::duration<double>(longest_));
    return {};
  }

  Sums sums() const {
    Sums all = sums_;
    for (const RequestId request : requests_) all.guesses += engine_.request(request).stats.drafted;
    all.batches += engine_.batches();
    all.coordinator_seconds += engine_.coordinator_seconds();
    return all;
  }

 private:
  Result<int64_t> step() {
    SLUICE_TRY(const auto progress, engine_.step());
    int64_t n = 0;
    for (const Progress& news : progress) {
      n += static_cast<int64_t>(news.tokens.size());
      ended_ = ended_ || news.finish != Finish::kNone;
    }
    return n;
  }

  Engine& engine_;
  std::vector<RequestId> requests_;
  Sums sums_;
  double longest_ = 0;  // step
  bool ended_ = false;  // one of them has
};

struct Options {
  SessionOptions session;
  std::string prompts;
  std::vector<std::string> methods = {"ar", "specpipe", "surge"};
  int32_t concurrency = 1;
  size_t first = 0;     // of the methods, which begins
  double seconds = 2;   // of each method at least
  double slice = 0.25;  // of a turn
  double others = 1;    // may take so much of the processors' time
};

// The same conversations by all methods in turn, until each has come to an end. Gives what others took meanwhile.
Result<double> hold(const Options& options, const Session& session, std::span<const std::string> messages,
                    std::vector<Sums>& sums) {
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<Talks> talks;
  for (const std::string& method : options.methods) {
    SLUICE_TRY(auto engine, session.make_engine(method, options.concurrency));
    talks.emplace_back(*engine);
    engines.push_back(std::move(engine));
    SLUICE_TRY_STATUS(talks.back().begin(session, method, messages));
  }
  const Others around;
  const size_t n = talks.size();
  for (size_t turn = 0; !std::ranges::all_of(talks, &Talks::ended); ++turn) {  // there and back: 0 1 2 2 1 0
    const size_t there = turn % (2 * n), method = (there < n ? there : 2 * n - 1 - there) + options.first;
    if (Talks& own = talks[method % n]; !own.ended()) SLUICE_TRY_STATUS(own.go_on(options.slice));
  }
  const double others = around.part();
  for (size_t i = 0; i < n; ++i) sums[i] += talks[i].sums();
  return others;
}

Result<nlohmann::json> run(const Options& options) {
  std::vector<std::string> messages;
  std::ifstream file(options.prompts);
  for (std::string line; std::getline(file, line);) messages.push_back(line);
  const auto n = static_cast<size_t>(options.concurrency);
  if (messages.size() < n) return input_error(options.prompts + " has fewer lines than --concurrency says");

  SLUICE_TRY(const Session session, Session::open(options.session, Heads::kGiven, options.methods));
  std::vector<Sums> sums(options.methods.size());
  const auto too_little = [&](const Sums& each) { return each.seconds < options.seconds; };
  int32_t n_void = 0;
  for (size_t group = 0; std::ranges::any_of(sums, too_little); ++group) {
    std::vector<Sums> more(sums.size());
    const size_t begin = group * n % (messages.size() - n + 1);
    SLUICE_TRY(const double others, hold(options, session, std::span(messages).subspan(begin, n), more));
    if (others > options.others) {
      if (++n_void > kMostVoid) return input_error("others never leave this machine alone");
      continue;
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
  }
  nlohmann::json out = {{"void", n_void}};
  for (size_t i = 0; i < sums.size(); ++i)
    out["methods"][options.methods[i]] = {{"tokens", sums[i].tokens},
                                          {"seconds", sums[i].seconds},
                                          {"guesses", sums[i].guesses},
                                          {"batches", sums[i].batches},
                                          {"coordinator_seconds", sums[i].coordinator_seconds}};
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
  app.add_option("--first", options.first, "which method begins")->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each method at least")->capture_default_str();
  app.add_option("--others", options.others, "part of the processors' time that others may take")
      ->capture_default_str();
  app.add_option("--slice", options.slice, "seconds of a turn")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto out = run(options);
  if (!out) return std::fprintf(stderr, "%s\n", out.error().message.c_str()), 2;
  std::printf("%s\n", out->dump().c_str());
  return 0;
}
