#include "session/draft_place.h"

#include <charconv>

namespace sluice {

namespace {

constexpr const char* kHereText = "here";

}  // namespace

std::string DraftPlace::text() const {
  if (kind == Kind::kHere) return kHereText;
  return kind == Kind::kStage ? std::to_string(stage) : host.text();
}

std::string DraftPlace::for_people() const {
  if (kind == Kind::kHere) return kHereText;
  return kind == Kind::kStage ? "with stage " + std::to_string(stage) : "on " + host.for_people();
}

Result<DraftPlace> DraftPlace::parse(const std::string& text) {
  if (text == kHereText) return DraftPlace{};
  if (text.find_first_not_of("0123456789") == std::string::npos) {
    DraftPlace place{.kind = Kind::kStage};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), place.stage);
    if (error == std::errc() && end == text.data() + text.size()) return place;
  }
  auto host = HostAddress::parse(text);
  if (!host || host->is_rank())
    return input_error("'" + text + "' is no place for a draft model: give here, the number of a stage, or HOST:PORT");
  return DraftPlace{.kind = Kind::kHost, .host = *host};
}

Status DraftPlace::check(bool is_draft, size_t n_stages) const {
  const std::string asked = "--draft-on " + text();
  if (!is_draft) return input_error(asked + " is for a draft model or a head: give --draft or --head, or leave it out");
  if (kind == Kind::kStage && static_cast<size_t>(stage) >= n_stages)
    return input_error(asked + ": stages are 0 to " + std::to_string(n_stages - 1));
  return {};
}

Status check_moves(const ModelFile& draft) {
  if (draft.vocabulary_path() == draft.path()) return {};
  return input_error("--draft " + draft.path() + " is a head of the model and runs where you type: leave role = " +
                     "\"draft\" and --draft-on out, or give a whole model");
}

}  // namespace sluice
