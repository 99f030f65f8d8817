#include "serve/api.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <ctime>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "model/utf8.h"
#include "serve/completion_form.h"
#include "serve/gathered_replies.h"
#include "serve/json_body.h"
#include "serve/json_values.h"
#include "serve/live_events.h"
#include "serve/live_page.h"
#include "serve/message_reader.h"
#include "serve/messages_form.h"
#include "serve/native_form.h"
#include "serve/native_prompt.h"
#include "serve/policy.h"
#include "serve/responses_form.h"
#include "serve/status_pages.h"
#include "serve/teller.h"

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

ApiError draining_error() {
  return {.status = 503,
          .message =
              "this server is ending and takes no further requests: ask another one, or this one when it is "
              "there again",
          .param = "",
          .code = "draining"};
}

// Of equal length whatever the text, so that comparing two tells nothing of either.
std::array<unsigned char, 32> digest(std::string_view text) {
  std::array<unsigned char, 32> bytes{};
  EVP_Digest(text.data(), text.size(), bytes.data(), nullptr, EVP_sha256(), nullptr);
  return bytes;
}

// "%20" is a space.
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) { return std::string_view("0123456789abcdef").find(text[at] | 0x20); };
    const bool escape = text[i] == '%' && i + 2 < text.size() && digit(i + 1) < 16 && digit(i + 2) < 16;
    out += escape ? static_cast<char>(16 * digit(i + 1) + digit(i + 2)) : text[i];
    if (escape) i += 2;
  }
  return out;
}

// Whether this is a name that somebody's DNS may let stand for this machine: a page of theirs can read what it gets by
// that (DNS rebinding). An address or localhost is none.
bool is_dns_name(std::string_view host) {
  if (host.starts_with('[')) return false;
  host = host.substr(0, host.find(':'));
  return host != "localhost" && host.find_first_not_of("0123456789.") != host.npos;
}

// Whether a page is of this machine: http://localhost, with or without a port.
bool is_local(std::string_view origin) {
  for (const std::string_view host : {"http://localhost", "http://127.0.0.1", "http://[::1]"})
    if (origin == host || (origin.starts_with(host) && origin[host.size()] == ':')) return true;
  return false;
}

// In whose form errors are told there.
ErrorForm errors_at(std::string_view path) {
  return path.starts_with("/v1/messages") ? ErrorForm::kAnthropic : ErrorForm::kOpenAi;
}

std::unique_ptr<AnswerForm> completion_form(const Asked& asked, const std::string& model) {
  return std::make_unique<CompletionForm>(asked.api, model, asked.include_usage, asked.settings);
}

std::unique_ptr<AnswerForm> responses_form(const Asked& asked, const std::string& model) {
  return std::make_unique<ResponsesForm>(model, asked.settings);
}

std::unique_ptr<AnswerForm> messages_form(const Asked& asked, const std::string& model) {
  return std::make_unique<MessagesForm>(model, asked.spec.prompt.size(), asked.stops);
}

std::unique_ptr<AnswerForm> native_form(const Asked& asked, const std::string& model) {
  return std::make_unique<NativeForm>(model, asked);
}

// A token and its text, or bytes where that is a part of a character.
Json piece_of(const Tokenizer& tokenizer, Token token) {
  const std::string piece = tokenizer.piece(token, /*special=*/true);
  const bool is_text = first_invalid_utf8(piece) == piece.size();
  return {{"id", token},
          {"piece", is_text ? Json(piece) : Json(std::vector<unsigned char>(piece.begin(), piece.end()))}};
}

// Texts that end an answer: those that the request names, and the family's.
std::vector<std::string> stops_of(const Asked& asked) {
  std::vector<std::string> stops = asked.stops;
  if (asked.format) stops.insert(stops.end(), asked.format->stops.begin(), asked.format->stops.end());
  std::erase(stops, std::string());
  return stops;
}

// Other names of paths, as llama-server has them.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"/chat/completions", "/v1/chat/completions"},
    {"/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"},
    {"/completions", "/completion"},
    {"/responses", "/v1/responses"},
    {"/models", "/v1/models"},
    {"/v1/health", "/health"}};

std::string_view path_of(const std::string& asked) {
  const auto alias =
      std::ranges::find(kAliases, std::string_view(asked), &std::pair<std::string_view, std::string_view>::first);
  return alias == std::end(kAliases) ? std::string_view(asked) : alias->second;
}

}  // namespace

// One of the six ways in which it is answered.
struct ServeApi::Route {
  std::string_view method, path;  // a path that ends in * stands for all that begin so
  // At once, without a body.
  ApiResult<Json> (ServeApi::*answer)(const HttpRequest&) const = nullptr;
  // By a page that is always the same.
  HttpReply (*page)() = nullptr;
  // By a look at the engine, likewise.
  void (ServeApi::*look)(const std::shared_ptr<Exchange>&) = nullptr;
  // By a stream that goes on, likewise.
  ApiStatus (ServeApi::*go_on)(const HttpRequest&, const std::shared_ptr<Exchange>&) = nullptr;
  // By what a body says.
  ApiResult<Json> (ServeApi::*tell)(const Json& body) const = nullptr;
  // By what the engine generates: what a body asks for, and how it is told.
  ApiResult<Asked> (*read)(const Session&, const ServeDefaults&, const Json& body) = nullptr;
  std::unique_ptr<AnswerForm> (*form)(const Asked&, const std::string& model) = nullptr;
  // Takes the prompts of a body that asks for an answer to each of several; null, or none: it asks for one.
  std::vector<Json> (*take_prompts)(Json& body) = nullptr;
  bool open = false;  // to who has no key
};

std::span<const ServeApi::Route> ServeApi::routes() {
  static constexpr Route kRoutes[] = {
      {.method = "POST", .path = "/v1/chat/completions", .read = read_chat, .form = completion_form},
      {.method = "POST", .path = "/v1/chat/completions/input_tokens", .tell = &ServeApi::count_chat_tokens},
      {.method = "POST", .path = "/v1/completions", .read = read_completion, .form = completion_form},
      {.method = "POST", .path = "/v1/responses", .read = read_responses, .form = responses_form},
      {.method = "POST", .path = "/v1/messages", .read = read_messages_request, .form = messages_form},
      {.method = "POST", .path = "/v1/messages/count_tokens", .tell = &ServeApi::count_tokens},
      {.method = "GET", .path = "/v1/streams", .go_on = &ServeApi::take_up},
      {.method = "GET", .path = "/v1/models", .answer = &ServeApi::models},
      {.method = "GET", .path = "/v1/models/*", .answer = &ServeApi::model},
      {.method = "POST",
       .path = "/completion",
       .read = read_native_completion,
       .form = native_form,
       .take_prompts = take_prompts},
      {.method = "POST", .path = "/infill", .read = read_infill, .form = native_form},
      {.method = "POST", .path = "/tokenize", .tell = &ServeApi::tokenize},
      {.method = "POST", .path = "/detokenize", .tell = &ServeApi::detokenize},
      {.method = "POST", .path = "/apply-template", .tell = &ServeApi::apply_template},
      {.method = "GET", .path = "/", .page = page_reply, .open = true},
      {.method = "GET", .path = "/timeline", .page = timeline_reply, .open = true},
      {.method = "GET", .path = "/live", .look = &ServeApi::live},
      {.method = "GET", .path = "/health", .answer = &ServeApi::health, .open = true},
      {.method = "GET", .path = "/metrics", .look = &ServeApi::metrics},
      {.method = "GET", .path = "/props", .answer = &ServeApi::props},
      {.method = "GET", .path = "/slots", .look = &ServeApi::slots},
  };
  return kRoutes;
}

const ServeApi::Route* ServeApi::find_route(const HttpRequest& request) {
  const std::string_view asked = path_of(request.path);
  for (const Route& route : routes()) {
    std::string_view path = route.path;
    const bool begins = path.ends_with('*');
    if (begins) path.remove_suffix(1);
    if (begins ? asked.starts_with(path) : asked == path) return &route;
  }
  return nullptr;
}

std::string ServeApi::paths() {
  std::string all;
  for (const Route& route : routes())
    if (!route.path.ends_with('*')) all += (all.empty() ? "" : ", ") + std::string(route.path);
  return all;
}

ServeApi::ServeApi(const Session& session, AnswerEngine& engine, ServeDefaults defaults, const TraceHeader& about,
                   const std::string& api_key)
    : session_(session),
      engine_(engine),
      defaults_(std::move(defaults)),
      api_key_(api_key),
      opened_(std::time(nullptr)),
      live_(std::make_shared<LiveFeed>(engine, hello_event(about, defaults_.model, session.options().request.method),
                                       telling_)) {}

ServeApi::~ServeApi() {
  stop();
  telling_.join();
}

void ServeApi::stop() {
  live_->end();
  streams_.end();
  reading_.join();  // which gives work to the others
  reading_more_.join();
  reading_forms_.join();
}

void ServeApi::drain() {
  draining_ = true;
  live_->end();
}

boost::asio::thread_pool& ServeApi::readers(Effort effort) {
  if (effort == Effort::kForm) return reading_forms_;
  return effort == Effort::kMuch ? reading_more_ : reading_;
}

HttpServer::Handler ServeApi::handler() {
  return {.screen = [this](const HttpRequest& request) { return screen(request); },
          .handle = [this](HttpRequest request,
                           std::shared_ptr<Exchange> exchange) { handle(std::move(request), std::move(exchange)); },
          .error =
              [](const std::string& path, int status, const std::string& message) {
                const ApiError error{.status = status, .message = message, .param = "", .code = ""};
                return text_of(error.to_json(errors_at(path)));
              }};
}

std::optional<HttpReply> ServeApi::screen(const HttpRequest& request) const {
  const Route* const route = find_route(request);
  const auto refused = [&](int status, const std::string& message, const char* code) {
    return reply_of({.status = status, .message = message, .param = "", .code = code}, errors_at(request.path));
  };
  if (!(route != nullptr && route->open) && !is_known(request))
    return refused(401, "this server wants its key: Authorization: Bearer KEY, or x-api-key: KEY", "invalid_api_key");
  if (api_key_.empty() && !request.origin.empty() && !is_local(request.origin))
    return refused(403, "a page of another machine may ask only with a key: start the server with --api-key",
                   "foreign_origin");
  if (api_key_.empty() && is_dns_name(request.host))
    return refused(403,
                   "without a key this server is asked by an address or as localhost, not as " + request.host +
                       ": start it with --api-key",
                   "foreign_host");
  if (route == nullptr) return refused(404, "there is nothing at this path: there are " + paths(), "unknown_url");
  if (request.method != route->method) {
    HttpReply reply = refused(405, "this path takes " + std::string(route->method), "method_not_allowed");
    reply.headers = {{"Allow", std::string(route->method)}};
    return reply;
  }
  if (route->read == nullptr || !draining_) return std::nullopt;
  return reply_of(draining_error(), errors_at(request.path));
}

bool ServeApi::is_known(const HttpRequest& request) const {
  if (api_key_.empty()) return true;
  const auto is = [](const std::string& given, const std::string& wanted) {
    const auto ours = digest(wanted), theirs = digest(given);
    return CRYPTO_memcmp(theirs.data(), ours.data(), ours.size()) == 0;
  };
  const bool by_bearer = is(request.authorization, "Bearer " + api_key_), by_key = is(request.api_key, api_key_);
  return by_bearer || by_key;
}

// Of the server's thread.
void ServeApi::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  const Route& route = *find_route(request);
  if (route.page != nullptr) return guarded(route, exchange, [&] { exchange->reply(route.page()); });
  if (route.look != nullptr) return guarded(route, exchange, [&] { (this->*route.look)(exchange); });
  if (route.go_on != nullptr)
    return guarded(route, exchange, [&] {
      const ApiStatus taken = (this->*route.go_on)(request, exchange);
      if (!taken) exchange->reply(reply_of(taken.error()));
    });
  if (route.answer != nullptr)
    return guarded(route, exchange, [&] { reply(route, (this->*route.answer)(request), *exchange); });
  boost::asio::thread_pool& first = readers(request.body.size() > policy::kMuchBody ? Effort::kMuch : Effort::kLittle);
  boost::asio::post(first, [this, &route, request = std::move(request), exchange = std::move(exchange)] {
    guarded(route, exchange, [&] { read(route, request, exchange); });
  });
}

// Has a body served, by another thread if it takes much.
void ServeApi::read(const Route& route, const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  if (exchange->gone()) return;
  auto body = parse_body(request.body);
  if (!body) return exchange->reply(reply_of(body.error(), errors_at(route.path)));
  const Effort effort = effort_of(*body);
  if (effort == Effort::kLittle) return serve(route, std::move(*body), exchange);
  boost::asio::post(readers(effort), [this, &route, body = std::move(*body), exchange]() mutable {
    guarded(route, exchange, [&] { serve(route, std::move(body), exchange); });
  });
}

void ServeApi::serve(const Route& route, Json body, const std::shared_ptr<Exchange>& exchange) {
  if (exchange->gone()) return;
  if (route.read != nullptr) return generate(route, std::move(body), exchange);
  reply(route, (this->*route.tell)(body), *exchange);
}

// Does it; what it throws becomes the reply.
template <class Do>
void ServeApi::guarded(const Route& route, const std::shared_ptr<Exchange>& exchange, Do act) const {
  const auto fail = [&](int status, const std::string& message) {
    const ApiError error{.status = status, .message = message, .param = "", .code = ""};
    exchange->reply(reply_of(error, errors_at(route.path)));
  };
  try {
    act();
  } catch (const std::bad_alloc&) {
    fail(503, "there is too little memory for this request now: ask again later, or for less");
  } catch (const std::exception& error) {
    fail(500, error.what());
  }
}

void ServeApi::reply(const Route& route, const ApiResult<Json>& answer, Exchange& exchange) {
  exchange.reply(answer ? HttpReply{.status = 200, .body = text_of(*answer)}
                        : reply_of(answer.error(), errors_at(route.path)));
}

void ServeApi::generate(const Route& route, Json body, const std::shared_ptr<Exchange>& exchange) {
  const auto refuse = [&](const ApiError& error) { exchange->reply(reply_of(error, errors_at(route.path))); };
  if (draining_) return refuse(draining_error());
  auto all = read_all(route, std::move(body));
  if (!all) return refuse(all.error());
  if (all->size() == 1) return submit(route, std::move(all->front()), exchange);
  const auto parts = gather_replies(exchange, all->size());
  for (size_t i = 0; i < parts.size(); ++i) submit(route, std::move((*all)[i]), parts[i]);
}

// What a body asks for; by several prompts, for an answer to each.
ApiResult<std::vector<Asked>> ServeApi::read_all(const Route& route, Json body) const {
  std::vector<Json> prompts = route.take_prompts != nullptr ? route.take_prompts(body) : std::vector<Json>();
  std::vector<Asked> all;
  for (size_t i = 0; i < std::max<size_t>(prompts.size(), 1); ++i) {
    if (!prompts.empty()) body["prompt"] = std::move(prompts[i]);
    SLUICE_API_TRY(Asked asked, route.read(session_, defaults_, body));
    if (asked.stream && prompts.size() > 1) return bad_parameter("stream", "is for one prompt at a time: leave it out");
    asked.index = i;
    all.push_back(std::move(asked));
  }
  return all;
}

void ServeApi::submit(const Route& route, Asked asked, const std::shared_ptr<Exchange>& exchange) {
  const Teller::Way way{.api = asked.api,
                        .choices = asked.choices,
                        .stream = asked.stream,
                        .logprobs = asked.spec.logprobs,
                        .errors = errors_at(route.path)};
  const std::shared_ptr<Exchange> client = asked.resumable ? streams_.keep(exchange) : exchange;
  Teller teller(route.form(asked, defaults_.model), way, session_.tokenizer(), client, session_.answers(),
                asked.format);
  AnswerEngine::Tell tell;
  if (asked.format)
    tell = [late = std::make_shared<LateTeller>(std::move(teller), telling_)](AnswerNews news) {
      late->take(std::move(news));
    };
  else
    tell = [now = std::make_shared<Teller>(std::move(teller))](const AnswerNews& news) { now->take(news); };
  std::vector<std::string> stops = stops_of(asked);
  const AnswerEngine::JobId job = engine_.submit({.spec = std::move(asked.spec),
                                                  .choices = asked.choices,
                                                  .method = std::move(asked.method),
                                                  .stops = std::move(stops),
                                                  .shown = std::move(asked.shown),
                                                  .form_param = std::move(asked.form_param)},
                                                 std::move(tell));
  client->on_gone([this, job] { engine_.cancel(job); });
}

ApiResult<Json> ServeApi::health(const HttpRequest&) const {
  if (draining_) return tl::unexpected<ApiError>(draining_error());
  const AnswerEngine::Load load = engine_.load();
  if (!load.trouble.empty())
    return tl::unexpected<ApiError>(
        {.status = 503, .message = load.trouble, .param = "", .code = "engine_unavailable"});
  return Json{{"status", "ok"}, {"running", load.running}, {"waiting", load.waiting}};
}

ApiResult<Json> ServeApi::props(const HttpRequest&) const { return props_page(session_, defaults_); }

// What looks at the engine may outlive this.
void ServeApi::metrics(const std::shared_ptr<Exchange>& exchange) {
  engine_.look([exchange, model = defaults_.model](const EngineReport& report) {
    exchange->reply({.status = 200, .body = metrics_page(report, model), .type = kMetricsType});
  });
}

void ServeApi::slots(const std::shared_ptr<Exchange>& exchange) {
  engine_.look([exchange, &session = session_, defaults = defaults_](const EngineReport& report) {
    exchange->reply({.status = 200, .body = text_of(slots_page(report, session, defaults))});
  });
}

ApiStatus ServeApi::take_up(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  return streams_.take_up(request.last_event_id, exchange);
}

void ServeApi::live(const std::shared_ptr<Exchange>& exchange) {
  if (live_->add(exchange)) return;
  if (draining_) return exchange->reply(reply_of(draining_error()));
  const std::string most = std::to_string(policy::kMostWatching);
  exchange->reply(reply_of({.status = 429,
                            .message = most + " pages watch already, as many as may: close one of them",
                            .param = "",
                            .code = "too_many_watch"}));
}

ApiResult<Json> ServeApi::model(const HttpRequest& request) const {
  const std::string name = unescaped(std::string_view(request.path).substr(std::string_view("/v1/models/").size()));
  if (name != defaults_.model && std::ranges::count(defaults_.aliases, name) == 0)
    return tl::unexpected<ApiError>({.status = 404,
                                     .message = "there is only " + defaults_.model + " here",
                                     .param = "model",
                                     .code = "model_not_found"});
  return Json{{"id", defaults_.model}, {"aliases", defaults_.aliases}, {"object", "model"},
              {"created", opened_},    {"owned_by", "sluice"},         {"context_length", session_.options().context}};
}

ApiResult<Json> ServeApi::models(const HttpRequest&) const {
  SLUICE_API_TRY(Json only, model({.method = "GET", .path = "/v1/models/" + defaults_.model, .authorization = ""}));
  return Json{{"object", "list"}, {"data", Json::array({std::move(only)})}};
}

ApiResult<Json> ServeApi::tokenize(const Json& body) const {
  const BodyReader reader(body, {"content", "add_special", "parse_special", "with_pieces"});
  SLUICE_API_TRY_STATUS(reader.check());
  SLUICE_API_TRY(const std::string content, reader.text("content"));
  SLUICE_API_TRY(const bool add, reader.flag("add_special", false));
  SLUICE_API_TRY(const bool parse, reader.flag("parse_special", true));
  SLUICE_API_TRY(const bool with_pieces, reader.flag("with_pieces", false));
  auto tokens = session_.tokenizer().encode(content, add, parse);
  if (!tokens) return bad_parameter("content", tokens.error().message);
  if (!with_pieces) return Json{{"tokens", *tokens}};
  Json pieces = Json::array();
  for (const Token token : *tokens) pieces.push_back(piece_of(session_.tokenizer(), token));
  return Json{{"tokens", std::move(pieces)}};
}

ApiResult<Json> ServeApi::detokenize(const Json& body) const {
  const BodyReader reader(body, {"tokens"});
  SLUICE_API_TRY_STATUS(reader.check());
  const auto ids = body.find("tokens");
  if (ids == body.end()) return bad_parameter("tokens", "is missing");
  SLUICE_API_TRY(const auto tokens, read_tokens(*ids, "tokens", session_.tokenizer().size()));
  return Json{{"content", session_.tokenizer().decode(tokens, /*special=*/true)}};
}

ApiResult<Json> ServeApi::count_tokens(const Json& body) const {
  SLUICE_API_TRY(const size_t n, count_input_tokens(Api::kMessages, session_, defaults_, body));
  return Json{{"input_tokens", n}};
}

ApiResult<Json> ServeApi::count_chat_tokens(const Json& body) const {
  SLUICE_API_TRY(const size_t n, count_input_tokens(Api::kChat, session_, defaults_, body));
  return Json{{"input_tokens", n}};
}

ApiResult<Json> ServeApi::apply_template(const Json& body) const {
  const BodyReader reader(body, {"messages", "tools", "add_generation_prompt"});
  SLUICE_API_TRY_STATUS(reader.check());
  const auto given = body.find("messages");
  if (given == body.end()) return bad_parameter("messages", "is missing");
  AnswerRequest request;
  SLUICE_API_TRY(request.conversation.messages, read_messages(*given, "messages"));
  SLUICE_API_TRY_STATUS(read_tools(body, request));
  SLUICE_API_TRY(request.conversation.add_generation_prompt, reader.flag("add_generation_prompt", true));
  auto prompt = session_.render(request.conversation);
  if (!prompt) return cannot_read("messages", prompt.error());
  return Json{{"prompt", *prompt}};
}

}  // namespace sluice
