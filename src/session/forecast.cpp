#include "session/forecast.h"

#include <algorithm>
#include <cmath>

#include "session/policy.h"

namespace sluice {

namespace {

// Two-sided 95 % point of Student's t, by the expansion around the normal distribution's (Abramowitz and Stegun,
// 26.7.5): within 1 % from three degrees of freedom on, and exact for fewer.
double student(size_t freedom) {
  if (freedom <= 2) return freedom == 1 ? 12.706 : 4.303;
  constexpr double z = 1.959964, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  const double n = static_cast<double>(freedom);
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

// Nothing if it was not let go on to its end.
Result<std::optional<Pace>> run(const Session& session, Engine& engine, const Contender& contender,
                                const std::vector<Token>& text, const std::function<bool()>& goes_on) {
  RequestSpec spec = session.spec(text);
  spec.method = contender.method;
  spec.method_options = contender.options;
  spec.sources = contender.sources;
  SLUICE_TRY_STATUS(engine.forget());
  SLUICE_TRY(const RequestId id, engine.submit(std::move(spec)));
  while (engine.busy()) {
    SLUICE_TRY_STATUS(engine.step().map([](const auto&) {}));
    if (!engine.busy() || goes_on()) continue;
    engine.cancel(id);
    return std::nullopt;
  }
  const Request& request = engine.request(id);
  if (request.finish == Finish::kFailed) return tl::unexpected<Error>(request.error);
  const Pace pace{.tokens = static_cast<double>(request.n_answer()) - 1, .seconds = engine.figures(id).decode_seconds};
  engine.release(id);
  return pace;
}

}  // namespace

Rate rate_of(std::span<const Pace> answers) {
  Pace sum;
  for (const Pace& pace : answers) {
    sum.tokens += pace.tokens;
    sum.seconds += pace.seconds;
  }
  if (sum.seconds <= 0) return {};
  Rate rate{.value = sum.tokens / sum.seconds};
  if (answers.size() < 2) return rate;
  double squares = 0;
  for (const Pace& pace : answers) squares += std::pow(pace.tokens - rate.value * pace.seconds, 2);
  const double n = static_cast<double>(answers.size());
  rate.half = student(answers.size() - 1) * std::sqrt(squares * n / (n - 1)) / sum.seconds;
  return rate;
}

const Forecast& Forecasts::best() const {
  const double enough = policy::kAboutAsFast * all.front().tokens_per_second;
  const auto slower = std::ranges::find_if(all, [&](const Forecast& f) { return f.tokens_per_second < enough; });
  return *std::max_element(all.begin(), slower, [](const Forecast& a, const Forecast& b) { return a.low < b.low; });
}

const Forecast& Forecasts::plain() const {
  const auto at = std::ranges::find_if(all, [](const Forecast& f) { return f.contender.method == "ar"; });
  SLUICE_CHECK(at != all.end(), "plain decoding is always among them");
  return *at;
}

Result<Forecasts> forecast(const Session& session, std::span<const std::vector<Token>> texts,
                           std::span<const Contender> contenders, const std::function<bool(double)>& goes_on) {
  std::vector<std::vector<Pace>> paces(contenders.size());
  Forecasts forecasts;
  const double n_answers = static_cast<double>(texts.size() * contenders.size());
  double done = 0;
  SLUICE_TRY(const auto engine, session.make_engine("ar", 1));  // whatever the method: none has a head
  for (bool on = true; on && forecasts.texts < texts.size();) {
    size_t c = 0;
    for (; on && c < contenders.size(); ++c) {
      const auto still = [&] { return goes_on(done / n_answers); };
      SLUICE_TRY(const auto pace, run(session, *engine, contenders[c], texts[forecasts.texts], still));
      on = pace && goes_on(++done / n_answers);
      if (pace) paces[c].push_back(*pace);
    }
    forecasts.texts += paces.back().size() > forecasts.texts;
  }
  for (size_t c = 0; c < contenders.size(); ++c) {
    const Rate rate = rate_of(std::span(paces[c]).first(forecasts.texts));
    forecasts.all.push_back({.contender = contenders[c],
                             .tokens_per_second = rate.value,
                             .low = std::max(0.0, rate.value - rate.half),
                             .high = rate.value + rate.half});
  }
  std::ranges::stable_sort(forecasts.all, std::greater(), &Forecast::tokens_per_second);
  return forecasts;
}

}  // namespace sluice
