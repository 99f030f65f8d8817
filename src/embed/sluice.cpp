#include "embed/sluice.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "method/methods.h"
#include "session/answer.h"
#include "session/hosts_file.h"
#include "session/session.h"

namespace sluice {

namespace {

Status check(const ModelOptions& options) {
  if (options.model.empty()) return input_error("--model is empty: give a GGUF file, or hf:OWNER/MODEL");
  if (options.method != kAutoMethod)
    SLUICE_TRY_STATUS(make_method(options.method, MethodOptions()).map([](const ActiveMethod&) {}));
  const auto refused = [](const char* option, int32_t value, const char* right) {
    return input_error(std::string(option) + " " + std::to_string(value) + ": give " + right);
  };
  if (options.stages < 1) return refused("--stages", options.stages, "1 or more");
  if (options.context < 0) return refused("--context", options.context, "0 or more");
  if (options.threads < 0 || options.threads > 256) return refused("--threads", options.threads, "0 to 256");
  if (!options.hosts.empty() && options.stages != 1)
    return refused("--stages", options.stages, "1 beside --hosts, which says how many there are");
  return {};
}

Result<SessionOptions> session_options(const ModelOptions& given) {
  SLUICE_TRY_STATUS(check(given));
  SessionOptions options{.model = given.model, .drafts = given.drafts, .heads = given.heads, .stages = given.stages};
  if (!given.hosts.empty()) {
    auto hosts = hosts_of(given.hosts);
    if (!hosts) return input_error("--hosts: " + hosts.error().message);
    take_hosts(*hosts, options);
  }
  if (!given.secret.empty()) options.secret = given.secret;
  options.context = given.context;
  options.threads = given.threads;
  options.request.method = given.method;
  return options;
}

void take(const AnswerOptions& options, RequestSpec& spec) {
  spec.max_tokens = options.max_tokens;
  spec.sampling.temperature = options.temperature;
  spec.sampling.top_k = options.top_k;
  spec.sampling.top_p = options.top_p;
  spec.sampling.min_p = options.min_p;
  spec.sampling.repeat_penalty = options.repeat_penalty;
  spec.sampling.seed = options.seed;
}

Reply reply_of(const Engine& engine, const Answer& done) {
  const Request& request = engine.request(done.request);
  Reply reply{.text = done.text,
              .tokens = {request.tokens.begin() + static_cast<ptrdiff_t>(request.n_prompt()), request.tokens.end()},
              .finish = name(request.finish),
              .method = std::string(request.method.name),
              .prompt_tokens = request.stats.prompt_tokens,
              .guesses = request.stats.drafted,
              .guessed_right = request.stats.accepted,
              .tokens_per_second = engine.figures(done.request).tokens_per_second};
  if (!done.trial) return reply;
  reply.method = done.trial->method();
  reply.plain_tokens_per_second = std::max(done.trial->plain_rate(), done.trial->plain_at_most());
  return reply;
}

}  // namespace

struct Model::State {
  explicit State(Session opened) : session(std::move(opened)) {}

  Session session;
  std::unique_ptr<Engine> engine;     // refers to the session's files
  std::optional<RequestId> previous;  // that the next answer continues
};

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Result<Model> Model::open(const ModelOptions& options) {
  SLUICE_TRY(const SessionOptions as_session, session_options(options));
  SLUICE_TRY(auto session, Session::open(as_session));
  auto state = std::make_unique<State>(std::move(session));
  SLUICE_TRY(state->engine, state->session.make_engine());
  return Model(std::move(state));
}

const std::string& Model::name() const { return state_->session.model().hparams().name; }
int32_t Model::context() const { return state_->session.options().context; }

Result<Reply> Model::answer(const std::vector<Message>& messages, const AnswerOptions& options, const OnText& on_text) {
  if (messages.empty()) return input_error("there are no messages: give one of the user at least");
  std::vector<ChatMessage> chat;
  for (const Message& message : messages) chat.push_back({.role = message.role, .content = message.content});
  SLUICE_TRY(auto tokens, state_->session.encode(chat));
  RequestSpec spec = state_->session.spec(std::move(tokens));
  take(options, spec);
  SLUICE_TRY_STATUS(state_->engine->check_request(spec));
  spec.continues = std::exchange(state_->previous, std::nullopt);
  bool goes_on = true;
  const auto emit = [&](const std::string& piece) {
    if (goes_on) goes_on = on_text(piece);
    return true;
  };
  SLUICE_TRY(const Answer done, sluice::answer(state_->session, *state_->engine, std::move(spec),
                                               {.emit = emit, .interrupted = [&] { return !goes_on; }}));
  state_->previous = done.request;
  return reply_of(*state_->engine, done);
}

}  // namespace sluice
