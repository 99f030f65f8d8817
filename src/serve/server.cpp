#include "serve/server.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "serve/engine_life.h"
#include "serve/engine_process.h"
#include "serve/engine_thread.h"
#include "serve/policy.h"

namespace sluice {

namespace {

// An engine, and what is to be known of it.
struct Opened {
  std::unique_ptr<AnswerEngine> engine;
  TraceHeader about;
  std::vector<std::string> methods;
};

Result<Opened> open_apart(const Session& session, const ServerOptions& options,
                          std::function<void(const Error&)> broken) {
  SLUICE_TRY(auto engine,
             EngineProcess::open(
                 session, options.concurrency, options.queue,
                 {.broken = std::move(broken), .restarted = options.restarted, .interrupted = options.interrupted}));
  const EngineOpened opened = engine->opened();
  return Opened{.engine = std::move(engine), .about = opened.about, .methods = opened.methods};
}

Result<Opened> open_here(const Session& session, const ServerOptions& options,
                         std::function<void(const Error&)> broken) {
  SLUICE_TRY(auto engine, session.make_engine(options.concurrency));
  Opened opened{.engine = nullptr, .about = engine->trace_header(), .methods = methods_at_hand(session, *engine)};
  opened.engine = std::make_unique<EngineThread>(session, std::move(engine), options.queue,
                                                 EngineThread::Hooks{.broken = std::move(broken)});
  return opened;
}

}  // namespace

Result<std::unique_ptr<Server>> Server::open(const Session& session, const ServerOptions& options) {
  std::unique_ptr<Server> server(new Server());
  const auto broken = [raw = server.get()](const Error& error) {
    const std::lock_guard lock(raw->mutex_);
    raw->failure_ = error;
  };
  SLUICE_TRY(Opened opened,
             options.engine_apart ? open_apart(session, options, broken) : open_here(session, options, broken));
  server->engine_ = std::move(opened.engine);
  std::vector<std::string> names = options.names;
  if (names.empty()) names.push_back(session.model().hparams().name);
  const ServeDefaults defaults{.model = names.front(),
                               .aliases = {names.begin() + 1, names.end()},
                               .slots = options.concurrency,
                               .max_tokens = options.max_tokens,
                               .seed = options.seed,
                               .methods = std::move(opened.methods)};
  server->model_ = defaults.model;
  server->api_ = std::make_unique<ServeApi>(session, *server->engine_, defaults, opened.about, options.api_key);
  HttpOptions http = options.http;
  http.beyond_loopback = !options.api_key.empty();
  SLUICE_TRY(server->http_, HttpServer::open(http, server->api_->handler()));
  return server;
}

Server::~Server() {
  if (http_) http_->stop();
  if (api_) api_->stop();
  engine_.reset();
  api_.reset();
}

size_t Server::at_work() const {
  const size_t all = http_->exchanges(), watching = api_->watching();
  return all - std::min(all, watching);
}

void Server::drain(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  api_->drain();
  while (at_work() > 0 && Clock::now() < until) std::this_thread::sleep_for(policy::kLookWhetherDone);
}

std::optional<Error> Server::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace sluice
