// Methods that hold the same conversations in one process, a fraction of a second each in turn, so that a machine that
// grows slower or faster favours none: what bench/concurrency measures with.
//
//   sluice_alternate [-m FILE] --prompts FILE --concurrency N [--methods ar,specpipe,surge] [--tokens N]
//                    [--slice SECONDS] [--seconds SECONDS] [--first K] [--threads N]
//
// FILE has a message a line; N of them at a time are in flight, with each method on an engine of its own. Measured is
// from when all have their first token until one has its last. Between slices the machine rests until what was under
// way has ended, and a slice begins when the first step has fed the stage again; few conversations are over in one.
// Prints one JSON object: of each method the tokens and the seconds of its slices.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "session/installation.h"
#include "session/session.h"

namespace {

using namespace sluice;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The conversations of one method.
class Talks {
 public:
  Talks(std::string method, std::unique_ptr<Engine> engine) : method_(std::move(method)), engine_(std::move(engine)) {}

  // Begins them, and goes on until all have their first token.
  Status begin(const Session& session, std::span<const std::string> messages) {
    for (const std::string& message : messages) {
      SLUICE_TRY(auto prompt, session.encode({{"user", message}}));
      SLUICE_TRY(const auto request, engine_->submit(session.spec(std::move(prompt), method_)));
      requests_.push_back(request);
    }
    const auto silent = [&](RequestId request) { return engine_->request(request).n_answer() == 0; };
    while (!ended_ && std::any_of(requests_.begin(), requests_.end(), silent))
      if (const auto stepped = step(); !stepped) return tl::unexpected<Error>(stepped.error());
    return {};
  }

  bool begun() const { return !requests_.empty(); }
  bool ended() const { return ended_; }

  Status slice(double length) {
    if (const auto stepped = step(); !stepped) return tl::unexpected<Error>(stepped.error());
    const auto start = Clock::now();
    int64_t n = 0, steps = 0;
    double seconds = 0;
    while (!ended_ && seconds < length) {
      SLUICE_TRY(const int64_t more, step());
      seconds = seconds_since(start);
      n += more;
      ++steps;
    }
    tokens_ += n;
    seconds_ += seconds;
    // Two batches may be under way.
    if (steps > 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(2.5 * seconds / static_cast<double>(steps)));
    return {};
  }

  Status end() {
    for (const RequestId request : requests_) engine_->cancel(request);
    while (engine_->busy())
      if (const auto stepped = step(); !stepped) return tl::unexpected<Error>(stepped.error());
    for (const RequestId request : requests_) {
      guesses_ += engine_->request(request).stats.drafted;
      engine_->release(request);
    }
    requests_.clear();
    ended_ = false;
    return {};
  }

  double seconds() const { return seconds_; }
  nlohmann::json json() const {
    return {{"tokens", tokens_},
            {"seconds", seconds_},
            {"guesses", guesses_},
            {"batches", engine_->batches()},
            {"coordinator_seconds", engine_->coordinator_seconds()}};
  }
  const std::string& method() const { return method_; }

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
  std::unique_ptr<Engine> engine_;
  std::vector<RequestId> requests_;
  bool ended_ = false;  // one of them has
  int64_t tokens_ = 0;
  int64_t guesses_ = 0;
  double seconds_ = 0;
};

struct Options {
  SessionOptions session;
  std::string prompts;
  std::vector<std::string> methods = {"ar", "specpipe", "surge"};
  int32_t concurrency = 1;
  size_t first = 0;  // of the methods, which has the first slice
  double slice = 1, seconds = 1.5;
};

// One group of conversations by all methods, slice by slice.
Status alternate(const Options& options, const Session& session, std::span<const std::string> messages,
                 std::vector<Talks>& talks) {
  const auto under_way = [](const Talks& each) { return !each.ended(); };
  for (size_t turn = options.first; std::any_of(talks.begin(), talks.end(), under_way); ++turn) {
    // There and back: 0 1 2 2 1 0
    const size_t n = talks.size(), at = turn % (2 * n);
    Talks& each = talks[at < n ? at : 2 * n - 1 - at];
    if (!each.begun()) SLUICE_TRY_STATUS(each.begin(session, messages));
    if (under_way(each)) SLUICE_TRY_STATUS(each.slice(options.slice));
  }
  for (Talks& each : talks) SLUICE_TRY_STATUS(each.end());
  return {};
}

Result<nlohmann::json> run(const Options& options) {
  std::vector<std::string> messages;
  std::ifstream file(options.prompts);
  for (std::string line; std::getline(file, line);) messages.push_back(line);
  const auto n = static_cast<size_t>(options.concurrency);
  if (messages.size() < n) return input_error(options.prompts + " has fewer lines than --concurrency says");

  SLUICE_TRY(const Session session, Session::open(options.session, Heads::kGiven, options.methods));
  std::vector<Talks> talks;
  for (const std::string& method : options.methods) {
    SLUICE_TRY(auto engine, session.make_engine(method, options.concurrency));
    talks.emplace_back(method, std::move(engine));
  }
  for (size_t at = 0; talks.front().seconds() < options.seconds; at = (at + n) % (messages.size() - n + 1))
    SLUICE_TRY_STATUS(alternate(options, session, std::span(messages).subspan(at, n), talks));
  nlohmann::json out;
  for (const Talks& each : talks) out[each.method()] = each.json();
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Methods in turn, a fraction of a second each"};
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
  app.add_option("--slice", options.slice, "seconds of a turn")->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each method at least")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto out = run(options);
  if (!out) return std::fprintf(stderr, "%s\n", out.error().message.c_str()), 2;
  std::printf("%s\n", out->dump().c_str());
  return 0;
}
