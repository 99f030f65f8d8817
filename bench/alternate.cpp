// Methods that take turns on the same conversations in one process, so that a machine that grows slower or faster, and
// where weights and cells lie in memory, favour none: what bench/concurrency measures with.
//
//   sluice_alternate [-m FILE] --prompts FILE --concurrency N [--methods ar,specpipe,surge] [--tokens N] [--passes N]
//                    [--seconds SECONDS] [--others PART] [--threads N]
//
// FILE has a message a line; N of them at a time are in flight, on one engine that goes on from group to group, as a
// server's does. From when all have their first token until one has its last, all change their method every N passes,
// in the order there and back: a turn is so short that a machine of two speeds, which lasts for seconds, is as fast for
// one method as for the next. A turn begins when what was under way at the change has come out, and those of a sweep
// count if all of it was run. A group is void and comes again where other processes took more than --others of the
// processors' time; the first one only warms the engine up. Prints one JSON object: of each method the tokens and the
// seconds, what entered as guesses and came true, the passes, the coordinator's CPU seconds, and how many groups were
// void.
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
  int64_t tokens = 0, guesses = 0, right = 0, batches = 0;  // right: guesses that came true
  double seconds = 0, coordinator_seconds = 0;

  Sums& operator+=(const Sums& more) {
    tokens += more.tokens;
    guesses += more.guesses;
    right += more.right;
    batches += more.batches;
    seconds += more.seconds;
    coordinator_seconds += more.coordinator_seconds;
    return *this;
  }
  Sums operator-(const Sums& less) const {
    return {tokens - less.tokens,   guesses - less.guesses, right - less.right,
            batches - less.batches, seconds - less.seconds, coordinator_seconds - less.coordinator_seconds};
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

struct Options {
  SessionOptions session;
  std::string prompts;
  std::vector<std::string> methods = {"ar", "specpipe", "surge"};
  int32_t concurrency = 1;
  int32_t passes = 8;  // a turn
  double seconds = 2;  // of each method at least
  double others = 1;   // may take so much of the processors' time
};

// Conversations at a time, of which each method does a part.
class Talks {
 public:
  Talks(const Options& options, Engine& engine) : options_(options), engine_(engine) {}

  // Until one of them ends; what came of whole sweeps is added to `sums`, by method.
  Status hold(const Session& session, std::span<const std::string> messages, std::vector<Sums>& sums) {
    SLUICE_TRY_STATUS(begin(session, messages));
    std::vector<size_t> sweep;
    for (size_t i = 0; i < sums.size(); ++i) sweep.push_back(i);
    for (size_t i = sums.size(); i-- > 0;) sweep.push_back(i);
    while (!ended_) {
      std::vector<Sums> more(sums.size());
      for (const size_t method : sweep) SLUICE_TRY_STATUS(turn(options_.methods[method], more[method]));
      if (!ended_)
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    }
    return end();
  }

 private:
  Status begin(const Session& session, std::span<const std::string> messages) {
    for (const std::string& message : messages) {
      SLUICE_TRY(auto prompt, session.encode({{"user", message}}));
      SLUICE_TRY(const auto request, engine_.submit(session.spec(std::move(prompt), options_.methods.front())));
      requests_.push_back(request);
    }
    const auto silent = [&](RequestId request) { return engine_.request(request).n_answer() == 0; };
    while (!ended_ && std::any_of(requests_.begin(), requests_.end(), silent)) SLUICE_TRY_STATUS(pass());
    return {};
  }

  Status turn(const std::string& method, Sums& sums) {
    for (const RequestId request : requests_) {
      const auto& sources = engine_.request(request).spec.sources;
      if (!ended_) SLUICE_TRY_STATUS(engine_.set_method(request, method, sources));
    }
    SLUICE_TRY_STATUS(pass());
    const Sums before = now();
    const auto start = Clock::now();
    for (int32_t i = 0; i < options_.passes; ++i) SLUICE_TRY_STATUS(pass());
    sums += {.seconds = seconds_since(start)};
    sums += now() - before;
    return {};
  }

  // Until the next verdicts.
  Status pass() {
    for (bool news = false; !news && !ended_;) {
      SLUICE_TRY(const auto progress, engine_.step());
      for (const Progress& of : progress) {
        n_tokens_ += std::ssize(of.tokens);
        news = news || !of.tokens.empty();
        ended_ = ended_ || of.finish != Finish::kNone;
      }
    }
    return {};
  }

  // So far.
  Sums now() const {
    Sums sums{.tokens = n_tokens_, .batches = engine_.batches(), .coordinator_seconds = engine_.coordinator_seconds()};
    for (const RequestId request : requests_) {
      sums.guesses += engine_.request(request).stats.drafted;
      sums.right += engine_.request(request).stats.accepted;
    }
    return sums;
  }

  // What is left of them is dropped.
  Status end() {
    for (const RequestId request : requests_) engine_.cancel(request);
    while (engine_.busy()) SLUICE_TRY_STATUS(engine_.step().map([](auto) {}));
    for (const RequestId request : requests_) engine_.release(request);
    requests_.clear();
    ended_ = false;
    return {};
  }

  const Options& options_;
  Engine& engine_;
  std::vector<RequestId> requests_;
  int64_t n_tokens_ = 0;
  bool ended_ = false;  // one of them has
};

Result<nlohmann::json> run(const Options& options) {
  std::vector<std::string> messages;
  std::ifstream file(options.prompts);
  for (std::string line; std::getline(file, line);) messages.push_back(line);
  const auto n = static_cast<size_t>(options.concurrency);
  if (messages.size() < n) return input_error(options.prompts + " has fewer lines than --concurrency says");

  SLUICE_TRY(const Session session, Session::open(options.session, Heads::kGiven, options.methods));
  SLUICE_TRY(const auto engine, session.make_engine(options.methods.back(), options.concurrency));
  Talks talks(options, *engine);
  std::vector<Sums> sums(options.methods.size());
  const auto too_little = [&](const Sums& each) { return each.seconds < options.seconds; };
  int32_t n_void = 0, n_empty = 0;
  for (size_t group = 0; std::ranges::any_of(sums, too_little); ++group) {
    std::vector<Sums> more(sums.size());
    const size_t begin = group * n % (messages.size() - n + 1);
    const Others around;
    SLUICE_TRY_STATUS(talks.hold(session, std::span(messages).subspan(begin, n), more));
    if (more.front().batches == 0 && ++n_empty == kMostVoid) return input_error("--tokens are too few for --passes");
    if (around.part() > options.others) {
      if (++n_void > kMostVoid) return input_error("others never leave this machine alone");
    } else if (group > 0) {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    }
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
  options.session.request.max_tokens = 192;
  options.session.request.ignore_end = true;
  app.add_option("-m,--model", options.session.model, "GGUF file");
  app.add_option("--threads", options.session.threads, "CPU threads");
  app.add_option("--tokens", options.session.request.max_tokens, "tokens an answer")->capture_default_str();
  app.add_option("--prompts", options.prompts, "a message a line")->required();
  app.add_option("--methods", options.methods, "of these")->delimiter(',')->capture_default_str();
  app.add_option("--concurrency", options.concurrency, "conversations at a time")->capture_default_str();
  app.add_option("--passes", options.passes, "a turn")->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each method at least")->capture_default_str();
  app.add_option("--others", options.others, "part of the processors' time that others may take")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto out = run(options);
  if (!out) return std::fprintf(stderr, "%s\n", out.error().message.c_str()), 2;
  std::printf("%s\n", out->dump().c_str());
  return 0;
}
