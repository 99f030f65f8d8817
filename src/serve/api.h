// What is answered to which request.
#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "serve/answer_engine.h"
#include "serve/answer_form.h"
#include "serve/http_server.h"
#include "serve/kept_streams.h"
#include "serve/live_feed.h"
#include "serve/request_reader.h"
#include "session/session.h"

namespace sluice {

// What has no body is answered by the server's thread, at once. Bodies are read, and prompts made tokens, by threads of
// their own, one for each kind of work: what takes long for one client holds up neither the sockets nor the engine, nor
// who asks for less.
class ServeApi {
 public:
  // about: the engine, for pages that watch. api_key: what clients must know; empty: nothing. REQUIRES: the session
  // outlives it, and the engine outlives stop() and is gone before this.
  ServeApi(const Session& session, AnswerEngine& engine, ServeDefaults defaults, const TraceHeader& about,
           const std::string& api_key);
  ~ServeApi();

  // What was asked before is given to the engine; nothing is after that. REQUIRES: no handler is called any more.
  void stop();

  HttpServer::Handler handler();
  // From now on nothing is generated for who comes. Thread safety: any thread.
  void drain();
  // Pages that watch, whose streams have no end of their own.
  size_t watching() const { return live_->watching(); }

 private:
  using Json = nlohmann::ordered_json;
  struct Route;
  static std::span<const Route> routes();
  static const Route* find_route(const HttpRequest& request);
  static std::string paths();  // of all that there is

  std::optional<HttpReply> screen(const HttpRequest& request) const;
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  void read(const Route& route, const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void serve(const Route& route, Json body, const std::shared_ptr<Exchange>& exchange);
  template <class Do>
  void guarded(const Route& route, const std::shared_ptr<Exchange>& exchange, Do act) const;
  static void reply(const Route& route, const ApiResult<Json>& answer, Exchange& exchange);
  boost::asio::thread_pool& readers(Effort effort);
  bool is_known(const HttpRequest& request) const;

  ApiResult<Json> health(const HttpRequest& request) const;
  ApiResult<Json> props(const HttpRequest& request) const;
  ApiResult<Json> models(const HttpRequest& request) const;
  ApiResult<Json> model(const HttpRequest& request) const;
  ApiResult<Json> tokenize(const Json& body) const;
  ApiResult<Json> detokenize(const Json& body) const;
  ApiResult<Json> count_tokens(const Json& body) const;
  ApiResult<Json> count_chat_tokens(const Json& body) const;
  ApiResult<Json> apply_template(const Json& body) const;
  void generate(const Route& route, Json body, const std::shared_ptr<Exchange>& exchange);
  ApiResult<std::vector<Asked>> read_all(const Route& route, Json body) const;
  void submit(const Route& route, Asked asked, const std::shared_ptr<Exchange>& exchange);
  void metrics(const std::shared_ptr<Exchange>& exchange);
  void slots(const std::shared_ptr<Exchange>& exchange);
  void live(const std::shared_ptr<Exchange>& exchange);
  ApiStatus take_up(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);

  const Session& session_;
  AnswerEngine& engine_;
  ServeDefaults defaults_;
  std::string api_key_;
  std::time_t opened_;
  std::atomic<bool> draining_ = false;
  boost::asio::thread_pool reading_{1}, reading_more_{1}, reading_forms_{1};  // bodies, by Effort
  boost::asio::thread_pool telling_{1};  // of answers that have to be read, and to pages that watch
  KeptStreams streams_{telling_};
  std::shared_ptr<LiveFeed> live_;
};

}  // namespace sluice
