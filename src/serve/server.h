// The server for clients of OpenAI's and Anthropic's APIs: a session's engine behind HTTP.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/answer_engine.h"
#include "serve/api.h"
#include "serve/http_server.h"
#include "session/session.h"

namespace sluice {

struct ServerOptions {
  HttpOptions http = {.port = 8080};
  std::vector<std::string> names;  // of the model, the first one in answers; empty: the one in its file
  std::string api_key;             // that clients must send; empty: none, and this machine alone may ask
  int32_t concurrency = 4;         // requests with a full context that are answered at a time; shorter ones may be more
  size_t queue = 256;              // that wait beside those
  std::optional<int32_t> max_tokens;  // of who does not say; none: as many as the context leaves
  std::optional<uint64_t> seed;       // likewise; none: a new one for each
  // The engine has a process of its own, and when that ends another one goes on. Else it ends the server with it.
  bool engine_apart = false;
  std::function<void(const std::string&)> restarted = [](const std::string&) {};  // a line for the user
  std::function<bool()> interrupted = [] { return false; };                       // asked while that process opens
};

class Server {
 public:
  // Errors name the option. REQUIRES: the session outlives it, and was opened before any server; with engine_apart,
  // that the process has one thread.
  static Result<std::unique_ptr<Server>> open(const Session& session, const ServerOptions& options);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Ends all answers and connections.
  ~Server();

  std::string address() const { return http_->address(); }  // HOST:PORT, with the port that was chosen
  const std::string& model() const { return model_; }       // its name in answers
  AnswerEngine::Load load() const { return engine_->load(); }
  // Requests that have come and are not answered yet, all that they are told included; pages that watch don't count.
  size_t at_work() const;
  // Refuses new requests, and waits until none is at work, or so many seconds are over.
  void drain(double seconds);
  // What has ended the engine for good; none: it works.
  std::optional<Error> failure() const;

 private:
  Server() = default;

  std::string model_;
  mutable std::mutex mutex_;
  std::optional<Error> failure_;
  std::unique_ptr<HttpServer> http_;  // outlives those who may speak to its clients
  std::unique_ptr<AnswerEngine> engine_;
  std::unique_ptr<ServeApi> api_;
};

}  // namespace sluice
