#include "cli/plan_report.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <nlohmann/json.hpp>

namespace sluice {

namespace {

std::string milliseconds(double seconds) { return fmt::format("{:.3g} ms", seconds * 1e3); }

std::string where(const Plan& plan) {
  if (!plan.hosts.empty()) return fmt::format("{} host{}", plan.hosts.size(), plan.hosts.size() == 1 ? "" : "s");
  const std::string stages = fmt::format("{} stage{}", plan.cuts.size(), plan.cuts.size() == 1 ? "" : "s");
  return stages + (plan.asked_profile.empty() ? " of this machine" : " at " + plan.asked_profile);
}

std::string table(const Forecasts& forecasts) {
  const double plain = forecasts.plain().tokens_per_second;
  std::string text = fmt::format("{:<54}{:>8}{:>18}{:>8}\n", "method", "tok/s", "95 %", "x ar");
  for (const Forecast& f : forecasts.all)
    text += fmt::format("{:<54}{:>8.1f}{:>18}{:>8.2f}\n", f.contender.name(), f.tokens_per_second,
                        forecasts.texts > 1 ? fmt::format("{:.1f} to {:.1f}", f.low, f.high) : "one text",
                        plain > 0 ? f.tokens_per_second / plain : 0.0);
  return text;
}

std::string in_words(const DraftPlace& place) {
  switch (place.kind) {
    case DraftPlace::Kind::kHere:
      break;
    case DraftPlace::Kind::kStage:
      return fmt::format("on the device of stage {}, whose time it shares", place.stage);
    case DraftPlace::Kind::kHost:
      return "on host " + place.host.for_people();
  }
  return "beside the coordinator";
}

std::string where_drafts_run(const Plan& plan) {
  std::string text =
      fmt::format("the draft model runs {}, {} a pass\n", in_words(plan.draft_on), milliseconds(plan.draft_pass));
  for (const Plan::Promise& promise : plan.places)
    text += fmt::format("  {:.1f} tok/s with it {}\n", promise.tokens_per_second, in_words(promise.draft_on));
  return text;
}

}  // namespace

std::vector<int32_t> Plan::inner_cuts() const {
  std::vector<int32_t> firsts;
  for (size_t s = 1; s < cuts.size(); ++s) firsts.push_back(cuts[s].first);
  return firsts;
}

std::string Plan::command() const {
  std::string line = "sluice run";
  if (!given_model.empty()) line += " -m " + given_model;
  for (const std::string& draft : drafts) line += " --draft " + draft;
  if (hosts.empty()) {
    line += fmt::format(" --stages {}", cuts.size());
  } else {
    line += " --hosts " + (given_hosts.empty() ? fmt::format("{}", fmt::join(hosts, ",")) : given_hosts);
    if (!secret.empty()) line += " --secret " + secret;
    if (cuts.size() > 1) line += fmt::format(" --cuts {}", fmt::join(inner_cuts(), ","));
  }
  const bool drafts = forecasts.best().contender.drafts();
  if (drafts && draft_on != DraftPlace() && !draft_is_known) line += " --draft-on " + draft_on.text();
  if (!asked_profile.empty()) line += " --profile " + asked_profile;
  return line + " --method " + forecasts.best().contender.name() + " \"Why is the sky blue?\"";
}

nlohmann::json to_json(const Plan& plan) {
  nlohmann::json methods = nlohmann::json::array();
  for (const Forecast& f : plan.forecasts.all)
    methods.push_back({{"method", f.contender.method},
                       {"settings", f.contender.settings},
                       {"tokens_per_second", f.tokens_per_second},
                       {"low", f.low},
                       {"high", f.high}});
  nlohmann::json places = nlohmann::json::array();
  for (const Plan::Promise& promise : plan.places)
    places.push_back({{"draft_on", promise.draft_on.text()}, {"tokens_per_second", promise.tokens_per_second}});
  return {{"model", plan.model},
          {"hosts", plan.hosts},
          {"left_out", plan.left_out},
          {"stages", plan.cuts.size()},
          {"cuts", plan.inner_cuts()},
          {"profile", plan.profile},
          {"seconds", {{"step", plan.step}, {"alone", plan.alone}, {"draft", plan.draft_pass}}},
          {"draft_on", plan.draft_pass > 0 ? nlohmann::json(plan.draft_on.text()) : nlohmann::json()},
          {"draft_places", std::move(places)},
          {"texts", plan.forecasts.texts},
          {"methods", std::move(methods)},
          {"best", plan.forecasts.best().contender.name()},
          {"command", plan.command()}};
}

std::string to_text(const Plan& plan) {
  std::string text = fmt::format("{} over {}, {} text{}; simulated\n", plan.model, where(plan), plan.forecasts.texts,
                                 plan.forecasts.texts == 1 ? "" : "s");
  for (const std::string& host : plan.left_out) text += "left out: " + host + ", without which the others are faster\n";
  if (plan.cuts.size() > 1)
    text += fmt::format("cuts {}: a step takes {} (the slowest stage), a token alone {} (all of them)\n",
                        fmt::join(plan.inner_cuts(), ","), milliseconds(plan.step), milliseconds(plan.alone));
  if (plan.draft_pass > 0) text += where_drafts_run(plan);
  text += "\n" + table(plan.forecasts) + "\n";
  const Contender &best = plan.forecasts.best().contender, &fastest = plan.forecasts.all.front().contender;
  if (&best != &fastest)
    text += fmt::format("{} promises about as much as {}, and differs less from text to text\n", best.name(),
                        fastest.name());
  return text + plan.command() + "\n";
}

}  // namespace sluice
