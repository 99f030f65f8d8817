#include "serve/server.h"

#include <utility>

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
  api_.reset();
  engine_.reset();
}

std::optional<Error> Server::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace sluice
