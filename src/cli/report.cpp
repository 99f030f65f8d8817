#include "cli/report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "session/width_lock.h"

namespace sluice {

namespace {

std::string source_name(const Engine& engine, const Answer& answer) {
  return engine.request(answer.request).source_name();
}

std::string count(size_t n, const char* one, const char* several) {
  return fmt::format("{} {}", n, n == 1 ? one : several);
}

// Tokens a second, to three figures.
std::string speed(double rate) { return fmt::format("{:.{}f}", rate, rate < 99.95 ? 1 : 0); }

std::string method_name(const Engine& engine, const Answer& answer) {
  return answer.trial ? answer.trial->method() : std::string(engine.request(answer.request).method.name);
}

// Tokens that a verification yields, for methods of which each is a pass of its own; without those of plain decoding's
// turn.
nlohmann::json acceptance_length(const Request& request, const Answer& answer) {
  const int64_t verifications = request.stats.verifications - answer.plain_verifications;
  if (request.method.traits.fills_pipeline || verifications < 2) return nullptr;
  const int64_t tokens = static_cast<int64_t>(request.n_answer()) - answer.plain_tokens;
  return static_cast<double>(tokens - 1) / static_cast<double>(verifications - 1);
}

// Whether plain decoding gave the rest of an answer that another method began.
bool ended_plainly(const Request& request, const AutoTrial& trial) {
  return trial.purpose() == AutoTrial::Purpose::kChoose && request.stats.drafted > 0 && trial.plain_rate() > 0 &&
         trial.prefers_plain();
}

// A line, if speculation did not pay: both figures, and what was done about it. Else empty.
std::string warning(const Session& session, const Request& request, const AutoTrial& trial) {
  const std::string both = fmt::format("{} tok/s with {}, {} with plain decoding", speed(trial.speculative_rate()),
                                       trial.method(), speed(trial.plain_rate()));
  if (trial.purpose() == AutoTrial::Purpose::kCompare)
    return trial.clearly_slower() ? "\n" + both + ": --method auto would have chosen plain decoding" : "";
  if (request.stats.drafted == 0)  // both sides did the same work: a difference is the machine's
    return std::string("\nspeculation gains nothing here, no guess entered the pipeline") +
           (session.cuts().size() == 1 ? " (one stage leaves nothing to fill; --stages splits the model): " : ": ") +
           both;
  return ended_plainly(request, trial) ? "\nspeculation does not pay here: " + both + ", which was used for the rest"
                                       : "";
}

}  // namespace

std::string emulated_links(const Session& session) {
  const bool paced = session.profile() && !session.options().simulated();
  return paced ? session.profile()->links_text() : "";
}

namespace {

std::string exactness_text(const Session& session, const Engine& engine) {
  if (!session.options().exact()) return kInexact;
  return is_lossy(session.options().request.sampling.rule) ? "lossy" : name(engine.exactness());
}

// Of the stages; null: hosts hold them, and have perhaps devices of their own.
nlohmann::json devices(const Session& session) {
  if (!session.options().hosts.empty()) return nullptr;
  std::vector<std::string> all;
  for (size_t s = 0; s < session.cuts().size(); ++s) all.push_back(session.options().device(s));
  return all;
}

}  // namespace

nlohmann::json to_json(const Session& session, const Engine& engine, const Answer& answer) {
  const SessionOptions& options = session.options();
  const Rule rule = options.request.sampling.rule;
  const Request& request = engine.request(answer.request);
  const RequestFigures figures = engine.figures(answer.request);
  const std::string links = emulated_links(session);
  const auto begin = request.tokens.begin() + static_cast<ptrdiff_t>(request.n_prompt());
  nlohmann::json j = {
      {"model", session.model().hparams().name},
      {"method", method_name(engine, answer)},
      {"source", source_name(engine, answer)},
      {"executor", name_of(kExecutors, options.executor)},
      {"stages", session.cuts().size()},
      {"width", options.request.method_options.width},
      {"compute", name_of(kComputes, options.compute)},
      {"exactness", exactness_text(session, engine)},
      {"devices", devices(session)},
      {"activations", name_of(kActivations, options.activations)},
      {"verify", name_of(kLosslessRules, rule)},
      {"lossy", name_of(kLossyRules, rule)},
      {"simulated_time", options.simulated()},
      {"paced", !options.simulated() && !session.profile_name().empty()},
      {"profile", session.profile_name().empty() ? nlohmann::json() : nlohmann::json(session.profile_name())},
      {"links_emulated", links.empty() ? nlohmann::json() : nlohmann::json(links)},
      {"prompt_tokens", request.stats.prompt_tokens},
      {"reused_tokens", request.stats.reused_tokens},
      {"tokens", std::vector<Token>(begin, request.tokens.end())},
      {"text", answer.text},
      {"finish", name(request.finish)},
      {"seconds",
       {{"load", session.load_seconds()}, {"prefill", figures.prefill_seconds}, {"decode", figures.decode_seconds}}},
      {"tokens_per_second", figures.tokens_per_second},
      {"steps", figures.steps},
      {"equivalent_acceptance_length", figures.equivalent_acceptance_length},
      {"acceptance_length", acceptance_length(request, answer)},
      {"drafted", request.stats.drafted},
      {"accepted", request.stats.accepted},
      {"flushes", request.stats.flushes},
      {"runs", request.stats.runs},
      {"batches", engine.batches()},
      {"coordinator_seconds", engine.coordinator_seconds()},
      {"stage_utilisation", figures.stage_utilisation}};
  if (session.profile() && !options.simulated()) j["stage_computing"] = figures.stage_computing;
  if (figures.relayed_edges > 0)
    j["relay"] = {{"edges", figures.relayed_edges},
                  {"bytes_per_token", figures.relayed_bytes_per_token},
                  {"seconds_per_step", figures.relayed_seconds_per_step}};
  if (!options.exact()) j["states_out_of_range"] = engine.out_of_range();
  if (options.compute == Compute::kStored)
    j["stored"] = {{"asked", engine.lookups().asked}, {"missed", engine.lookups().missed}};
  for (const auto& [name, values] : request.method.policy->figures()) j[name] = values;
  if (answer.trial)
    j["trial"] = {{"plain_tokens_per_second", answer.trial->plain_rate()},
                  {"speculative_tokens_per_second", answer.trial->speculative_rate()}};
  return j;
}

std::string out_of_range_text(uint64_t n) {
  return fmt::format(
      "Numbers of states beyond f16's range: {}; they became its largest (--activations f32 keeps them).", n);
}

std::string relay_text(size_t edges, double bytes_per_token, double seconds_per_step) {
  return fmt::format("{} by way of this process: {:.1f} KB a token and {:.2f} ms a step more.",
                     count(edges, "edge", "edges"), bytes_per_token / 1e3, seconds_per_step * 1e3);
}

PaceKept pace_of(const nlohmann::json& run) {
  PaceKept pace;
  const auto computing = run.find("stage_computing"), stored = run.find("stored");
  if (computing != run.end())
    for (const double share : *computing) pace.computing = std::max(share, pace.computing.value_or(0.0));
  if (stored != run.end() && !stored->is_null()) {
    pace.asked = (*stored)["asked"];
    pace.missed = (*stored)["missed"];
  }
  return pace;
}

std::string PaceKept::text() const {
  std::string text;
  if (computing)
    text += fmt::format("computing took at most {:.2f} of a stage's pace{}\n", *computing,
                        *computing < kMostComputing ? "" : ", TOO MUCH for figures of that pace");
  if (asked > 0)
    text += fmt::format("stored answers: {} asked for, {} computed ({:.2f} %)\n", asked, missed,
                        100.0 * static_cast<double>(missed) / static_cast<double>(asked));
  return text;
}

Status PaceKept::check() const {
  if (static_cast<double>(missed) <= kMostMissed * static_cast<double>(asked)) return {};
  return runtime_error(
      fmt::format("void: {} of {} answers were not stored, more than {:g} %; run it on --executor virtual --compute "
                  "lazy with other "
                  "seeds of the profile first, or again: what was missing of draft models is stored now",
                  missed, asked, 100.0 * kMostMissed));
}

std::string summary(const Session& session, const Engine& engine, const Answer& answer) {
  const Request& request = engine.request(answer.request);
  const RequestFigures figures = engine.figures(answer.request);
  const double rate = figures.tokens_per_second;
  const double plain = answer.trial ? answer.trial->plain_rate() : 0;
  const double at_most = answer.trial ? answer.trial->plain_at_most() : 0;
  const std::string method = method_name(engine, answer);
  if (answer.text.empty() && request.finish == Finish::kStop) return "The model ended its answer at once.";
  std::string text = speed(rate) + " tok/s";
  if (session.options().simulated()) text += " (simulated)";
  text += method == "ar" ? ", plain decoding" : " by " + method;
  if (answer.trial && ended_plainly(request, *answer.trial)) text += " and plain decoding";
  if (is_lossy(session.options().request.sampling.rule)) text += ", lossy";
  if (!session.options().exact()) text += std::string(", ") + kInexact;
  if (engine.exactness() != Exactness::kBitwise) text += std::string(", ") + name(engine.exactness());
  if (plain > 0) text += fmt::format(", {:.2f} x plain ({})", rate / plain, speed(plain));
  if (at_most > 0) text += fmt::format(", at least {:.2f} x plain (at most {})", rate / at_most, speed(at_most));
  text += ".";
  if (request.stats.drafted > 0)
    text += fmt::format(" {} of {} right.", request.stats.accepted,
                        count(static_cast<size_t>(request.stats.drafted), "guess", "guesses"));
  if (figures.relayed_edges > 0)
    text += " " + relay_text(figures.relayed_edges, figures.relayed_bytes_per_token, figures.relayed_seconds_per_step);
  if (engine.out_of_range() > 0) text += " " + out_of_range_text(engine.out_of_range());
  if (plain > 0) text += warning(session, request, *answer.trial);
  const std::string lock = lock_text(session.options(), engine.exactness());
  return lock.empty() ? text : text + "\n" + lock;
}

std::string details(const Session& session, const Engine& engine, const Answer& answer) {
  const SessionOptions& options = session.options();
  const Request& request = engine.request(answer.request);
  const RequestFigures figures = engine.figures(answer.request);
  std::string text =
      fmt::format("{} in {:.2f} s after a prompt of {} in {:.2f} s; source {}, width {}, {}, executor {}{}, {}",
                  count(request.n_answer(), "token", "tokens"), figures.decode_seconds,
                  count(static_cast<size_t>(request.stats.prompt_tokens), "token", "tokens"), figures.prefill_seconds,
                  source_name(engine, answer), options.request.method_options.width,
                  count(session.cuts().size(), "stage", "stages"), name_of(kExecutors, options.executor),
                  session.profile_name().empty() ? "" : ", profile " + session.profile_name(),
                  count(static_cast<size_t>(request.stats.flushes), "flush", "flushes"));
  if (answer.trial && answer.trial->plain_rate() > 0)
    text += fmt::format("; {} alone {} tok/s, plain decoding {}", answer.trial->method(),
                        speed(answer.trial->speculative_rate()), speed(answer.trial->plain_rate()));
  if (const std::string links = emulated_links(session); !links.empty()) text += "; links emulated: " + links;
  std::string pace = pace_of(to_json(session, engine, answer)).text();
  if (!pace.empty()) pace.pop_back();
  return pace.empty() ? text : text + "\n" + pace;
}

std::string cut_off(const Engine& engine, const Answer& answer, bool length_given) {
  const Request& request = engine.request(answer.request);
  if (request.finish != Finish::kLength) return {};
  const size_t asked = static_cast<size_t>(request.spec.max_tokens), came = request.n_answer();
  if (came < asked) return fmt::format("Cut off: the context of {} tokens is full (--context).", request.tokens.size());
  return length_given ? "" : fmt::format("Cut off after {} tokens: -n N allows more.", came);
}

Status write_trace(const Session& session, const Engine& engine, const Answer& answer, const std::string& path) {
  if (path.empty()) return {};
  Trace trace = engine.trace();
  const Request& request = engine.request(answer.request);
  trace.header.model = session.model().hparams().name;
  trace.header.method = method_name(engine, answer);
  trace.header.source = source_name(engine, answer);
  trace.header.width = session.options().request.method_options.width;
  trace.header.steps = engine.figures(answer.request).steps;
  trace.header.decode_begin = request.stats.first_token;
  trace.header.decode_end = request.stats.last_token;
  return trace.write(path);
}

}  // namespace sluice
