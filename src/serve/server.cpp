#include "serve/server.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "method/methods.h"
#include "serve/policy.h"
#include "session/options.h"

namespace sluice {

namespace {

// Those that the engine has models for.
std::vector<std::string> methods_at_hand(const Session& session, const Engine& engine) {
  std::vector<std::string> methods = {kAutoMethod};
  for (const std::string& name : method_names())
    if (engine.check_request(session.spec({Token(0)}, name))) methods.push_back(name);
  return methods;
}

}  // namespace

Result<std::unique_ptr<Server>> Server::open(const Session& session, const ServerOptions& options) {
  SLUICE_TRY(auto engine, session.make_engine(options.concurrency));
  std::unique_ptr<Server> server(new Server());
  const auto broken = [raw = server.get()](const Error& error) {
    const std::lock_guard lock(raw->mutex_);
    raw->failure_ = error;
  };
  const TraceHeader about = engine->trace_header();
  std::vector<std::string> methods = methods_at_hand(session, *engine);
  server->engine_ = std::make_unique<EngineThread>(session, std::move(engine), options.queue, broken);
  const ServeDefaults defaults{.model = session.model().hparams().name,
                               .slots = options.concurrency,
                               .max_tokens = options.max_tokens,
                               .seed = options.seed,
                               .methods = std::move(methods)};
  server->api_ = std::make_unique<ServeApi>(session, *server->engine_, defaults, about, options.api_key);
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
  while (at_work() > 0 && !failure() && Clock::now() < until) std::this_thread::sleep_for(policy::kLookWhetherDone);
}

std::optional<Error> Server::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace sluice
