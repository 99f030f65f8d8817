// Methods that hold the same conversations in one process, in turn there and back, so that a machine that grows slower
// or faster favours none: what bench/concurrency measures with.
//
//   sluice_alternate [-m FILE] --prompts FILE --concurrency N [--methods ar,specpipe,surge] [--tokens N]
//                    [--seconds SECONDS] [--first K] [--threads N]
//
// FILE has a message a line; N of them at a time are in flight, on an engine made for them: where its weights and cells
// come to lie in memory changes its speed by some per cent. Measured is from when all have their first token until one
// has its last. Prints one JSON object: of each method the tokens and the seconds, what entered as guesses, the batches
// and the coordinator's CPU seconds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "session/installation.h"
#include "session/session.h"

namespace {

using namespace sluice;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What a method has done.
struct Sums {
  int64_t tokens = 0, guesses = 0, batches = 0;
  double seconds = 0, coordinator_seconds = 0;
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
};

Result<nlohmann::json> run(const Options& options) {
  std::vector<std::string> messages;
  std::ifstream file(options.prompts);
  for (std::string line; std::getline(file, line);) messages.push_back(line);
  const auto n = static_cast<size_t>(options.concurrency);
  if (messages.size() < n) return input_error(options.prompts + " has fewer lines than --concurrency says");

  SLUICE_TRY(const Session session, Session::open(options.session, Heads::kGiven, options.methods));
  std::vector<Sums> sums(options.methods.size());
  const auto too_little = [&](const Sums& each) { return each.seconds < options.seconds; };
  for (size_t turn = 0; turn % (2 * sums.size()) != 0 || std::any_of(sums.begin(), sums.end(), too_little); ++turn) {
    // There and back (0 1 2 2 1 0), and all of them hold the same ones before others come.
    const size_t at = turn % (2 * sums.size()), group = turn / sums.size();
    const size_t method = ((at < sums.size() ? at : 2 * sums.size() - 1 - at) + options.first) % sums.size();
    const size_t begin = group * n % (messages.size() - n + 1);
    SLUICE_TRY(const auto engine, session.make_engine(options.methods[method], options.concurrency));
    Talks talks(*engine);
    SLUICE_TRY_STATUS(talks.begin(session, options.methods[method], std::span(messages).subspan(begin, n)));
    SLUICE_TRY_STATUS(talks.go_on(sums[method]));
  }
  nlohmann::json out;
  for (size_t i = 0; i < sums.size(); ++i)
    out[options.methods[i]] = {{"tokens", sums[i].tokens},
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
  CLI11_PARSE(app, argc, argv);
  const auto out = run(options);
  if (!out) return std::fprintf(stderr, "%s\n", out.error().message.c_str()), 2;
  std::printf("%s\n", out->dump().c_str());
  return 0;
}
