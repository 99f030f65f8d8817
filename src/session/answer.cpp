#include "session/answer.h"

#include <span>

#include "session/policy.h"

namespace sluice {

namespace {

// Whether plain decoding gets turns on an answer: with method `auto`; and with a method that was named, to say so if it
// is far slower, unless another text would come of it (another rule than match), a trace would show it, the clock is
// simulated, so that figures are those of the method alone, or the answer is too short. Where bits depend on what else
// is in a batch, none is changed.
std::optional<AutoTrial::Purpose> trial_for(const SessionOptions& options, Exactness exactness) {
  const RequestSpec& request = options.request;
  if (!holds_to_the_bit(exactness)) return std::nullopt;
  if (request.method == kAutoMethod) return AutoTrial::Purpose::kChoose;
  const bool comparable = request.method != "ar" && options.same_tokens() && !options.simulated() && !options.trace &&
                          request.max_tokens >= policy::kWorthATrial;
  if (!comparable) return std::nullopt;
  return AutoTrial::Purpose::kCompare;
}

// At the beginning (-1) and the end (1) of plain decoding's turn.
void count_plain(const Request& request, Answer& answer, int sign) {
  answer.plain_tokens += sign * static_cast<int64_t>(request.n_answer());
  answer.plain_verifications += sign * request.stats.verifications;
}

// Lets the trial switch the method, if it wants to.
Status go_on(Engine& engine, Answer& answer) {
  const Request& request = engine.request(answer.request);
  const auto method =
      answer.trial->observe(static_cast<int64_t>(request.n_answer()), engine.now(), engine.plain_rate_at_most());
  if (!method) return {};
  if (answer.trial->purpose() == AutoTrial::Purpose::kCompare) count_plain(request, answer, *method == "ar" ? -1 : 1);
  return engine.set_method(answer.request, *method, request.spec.sources);
}

}  // namespace

Result<Answer> answer(const Session& session, Engine& engine, RequestSpec spec, const AnswerHooks& hooks) {
  Answer answer;
  const auto trial = trial_for(session.options(), engine.exactness());
  if (trial && spec.method != "ar") answer.trial.emplace(spec.method, *trial);
  SLUICE_TRY(answer.request, engine.submit(std::move(spec)));
  TextStream stream(session.tokenizer());
  bool listening = true;
  const auto say = [&](const std::string& text) {
    answer.text += text;
    if (listening && !text.empty()) listening = hooks.emit(text);
  };
  const bool real_time = !session.options().simulated();
  while (engine.busy()) {
    if (real_time) engine.wake_at(engine.now() + policy::kLookUp);
    SLUICE_TRY(const auto progress, engine.step());
    SLUICE_TRY_STATUS(session.files().poll());
    for (const auto& news : progress)
      for (const Token token : news.tokens)
        if (!session.tokenizer().ends_generation(token)) say(stream.push(token));
    answer.interrupted = hooks.interrupted();
    if (answer.interrupted || !listening) engine.cancel(answer.request);
    if (answer.trial && engine.busy()) SLUICE_TRY_STATUS(go_on(engine, answer));
  }
  const Request& request = engine.request(answer.request);
  if (has_error(request.finish)) return tl::unexpected<Error>(request.error);
  if (answer.plain_tokens < 0) count_plain(request, answer, 1);  // it ended in that turn
  say(stream.finish());
  SLUICE_TRY_STATUS(session.files().look());
  if (!listening && !answer.interrupted)
    return runtime_error("the output could not be written (is the disk full or the pipe closed?)");
  return answer;
}

Answer finished_answer(const Session& session, const Engine& engine, RequestId id) {
  Answer answer{.request = id, .text = {}, .trial = {}};
  TextStream stream(session.tokenizer());
  const Request& request = engine.request(id);
  for (const Token token : std::span(request.tokens).subspan(request.n_prompt()))
    if (!session.tokenizer().ends_generation(token)) answer.text += stream.push(token);
  answer.text += stream.finish();
  return answer;
}

}  // namespace sluice
