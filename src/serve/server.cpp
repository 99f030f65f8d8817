#include "serve/server.h"

#include <chrono>
#include <thread>
#include <utility>

#include "serve/policy.h"

namespace sluice {

Result<std::unique_ptr<Server>> Server::open(const Session& session, const ServerOptions& options) {
  SLUICE_TRY(auto engine, session.make_engine(options.concurrency));
  std::unique_ptr<Server> server(new Server());
  const auto broken = [raw = server.get()](const Error& error) {
    const std::lock_guard lock(raw->mutex_);
    raw->failure_ = error;
  };
  server->engine_ = std::make_unique<EngineThread>(session, std::move(engine), options.queue, broken);
  const ServeDefaults defaults{.model = session.model().hparams().name,
                               .slots = options.concurrency,
                               .max_tokens = options.max_tokens,
                               .seed = options.seed};
  server->api_ = std::make_unique<ServeApi>(session, *server->engine_, defaults, options.api_key);
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
