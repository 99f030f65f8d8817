// Methods that hold the same conversations in one process, in turn there and back, so that a machine that grows slower
// or faster favours none: what bench/concurrency measures with.
//
//   sluice_alternate [-m FILE] --prompts FILE --concurrency N [--methods ar,specpipe,surge] [--tokens N]
//                    [--seconds SECONDS] [--others PART] [--drift PART] [--first K] [--threads N]
//
// FILE has a message a line; N of them at a time are in flight, on an engine made for them: where its weights and cells
// come to lie in memory changes its speed by some per cent. Measured is from when all have their first token until one
// has its last. A group of turns is void and comes again where other processes took more than --others of the
// processors' time in one of them, or where the machine itself changed by more than --drift, which a loop of adding up
// tells before and after each (guests on the same processor share its caches, memory and heat). Prints one JSON object:
// of each method the tokens and the seconds, what entered as guesses, the batches, the coordinator's CPU seconds, and
// how many groups were void.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "session/installation.h"
#include "session/session.h"

namespace {

using namespace sluice;
using Clock = std::chrono::steady_clock;

constexpr int32_t kMostVoid = 100;  // groups of turns that others disturb

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

// How fast the machine is just now, on numbers in a core's cache and in memory.
class Probe {
 public:
  void take() {
    cached_.add(best_of(std::span(numbers_).first(1 << 15), 512));
    memory_.add(best_of(numbers_, 1));
  }
  // By what part the slowest time of a kind is above the fastest.
  double drift() const { return std::max(cached_.spread(), memory_.spread()); }

 private:
  struct Times {
    double least = 1e9, most = 0;
    void add(double time) { least = std::min(least, time), most = std::max(most, time); }
    double spread() const { return most / least - 1; }
  };

  static double best_of(std::span<const uint64_t> numbers, int passes) {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const auto start = Clock::now();
      uint64_t sum = 0;
      for (int pass = 0; pass < passes; ++pass) sum = std::accumulate(numbers.begin(), numbers.end(), sum ^ pass);
      best = std::min(best, seconds_since(start));
      kept_ = sum;
    }
    return best;
  }

  inline static volatile uint64_t kept_ = 0;  // so that the sums are made
  std::vector<uint64_t> numbers_ = std::vector<uint64_t>(1 << 24, 1);
  Times cached_, memory_;
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

  // Until one of them ends.
  Status go_on(Sums& sums) {
    const auto start = Clock::now();
    while (!ended_) {
      SLUICE_TRY(const int64_t more, step());
      sums.tokens += more;
    }
    sums.seconds += seconds_since(start);
    for (const RequestId request : requests_) sums.guesses += engine_.request(request).stats.drafted;
    sums.batches += engine_.batches();
    sums.coordinator_seconds += engine_.coordinator_seconds();
    return {};
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
  bool ended_ = false;  // one of them has
};

struct Options {
  SessionOptions session;
  std::string prompts;
  std::vector<std::string> methods = {"ar", "specpipe", "surge"};
  int32_t concurrency = 1;
  size_t first = 0;    // of the methods, which begins
  double seconds = 2;  // of each method at least
  double others = 1;   // may take so much of the processors' time
  double drift = 1e9;  // by so much the machine may change
};

Result<nlohmann::json> run(const Options& options) {
  std::vector<std::string> messages;
  std::ifstream file(options.prompts);
  for (std::string line; std::getline(file, line);) messages.push_back(line);
  const auto n = static_cast<size_t>(options.concurrency);
  if (messages.size() < n) return input_error(options.prompts + " has fewer lines than --concurrency says");

  SLUICE_TRY(const Session session, Session::open(options.session, Heads::kGiven, options.methods));
  const size_t n_methods = options.methods.size();
  std::vector<Sums> sums(n_methods);
  const auto too_little = [&](const Sums& each) { return each.seconds < options.seconds; };
  int32_t n_void = 0;
  for (size_t group = 0; std::any_of(sums.begin(), sums.end(), too_little); ++group) {
    // There and back (0 1 2 2 1 0), and all of them hold the same ones before others come.
    std::vector<Sums> more(n_methods);
    double others = 0;
    Probe probe;
    probe.take();
    for (size_t turn = 0; turn < 2 * n_methods; ++turn) {
      const size_t method = ((turn < n_methods ? turn : 2 * n_methods - 1 - turn) + options.first) % n_methods;
      const size_t begin = (2 * group + turn / n_methods) * n % (messages.size() - n + 1);
      SLUICE_TRY(const auto engine, session.make_engine(options.methods[method], options.concurrency));
      Talks talks(*engine);
      SLUICE_TRY_STATUS(talks.begin(session, options.methods[method], std::span(messages).subspan(begin, n)));
      const Others around;
      SLUICE_TRY_STATUS(talks.go_on(more[method]));
      others = std::max(others, around.part());
      probe.take();
    }
    if (others > options.others || probe.drift() > options.drift) {
      if (++n_void > kMostVoid) return input_error("others never leave this machine alone");
      continue;
    }
    for (size_t i = 0; i < n_methods; ++i) sums[i] += more[i];
  }
  nlohmann::json out = {{"void", n_void}};
  for (size_t i = 0; i < n_methods; ++i)
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
  app.add_option("--drift", options.drift, "part by which the machine may become slower or faster");
  CLI11_PARSE(app, argc, argv);
  const auto out = run(options);
  if (!out) return std::fprintf(stderr, "%s\n", out.error().message.c_str()), 2;
  std::printf("%s\n", out->dump().c_str());
  return 0;
}
