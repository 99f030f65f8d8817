// Which heads a session has, and which serves whom.
#include <algorithm>
#include <filesystem>

#include "session/auto_method.h"
#include "session/installation.h"
#include "session/policy.h"
#include "session/session.h"
#include "session/speculators.h"

namespace sluice {

namespace {

// First layers of an SPD head's second, third, … stage.
std::vector<int32_t> inner_cuts(const HeadParameters& head) { return {head.cuts.begin() + 1, head.cuts.end() - 1}; }

// An SPD head runs with the stages that it was trained for, which are taken unless others were asked for.
bool runs_with(const HeadParameters& head, const SessionOptions& options) {
  if (head.kind != HeadKind::kSpd || !options.stages_asked_for()) return true;
  return options.cuts.empty() ? options.stages == head.stages() : options.cuts == inner_cuts(head);
}

bool asks_for(const SessionOptions& options, SourceKind source) {
  return std::ranges::count(options.request.sources, source) > 0;
}
bool head_asked_for(const SessionOptions& options) {
  return asks_for(options, SourceKind::kHead) || asks_for(options, SourceKind::kMtp);
}

// The kind of head that a method cannot do without.
std::optional<HeadKind> head_kind(const std::string& method) {
  const MethodEntry* entry = find_method(method);
  return entry != nullptr ? entry->traits({}).head : std::nullopt;
}

}  // namespace

Status Session::open_head(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return input_error("--head " + path + ": no such file; give a head of this model, made by sluice train");
  SLUICE_TRY(auto opened, HeadFile::open(path, *model_));
  const HeadKind kind = opened.parameters().kind;
  if (kind == HeadKind::kDraft) return input_error("--head " + path + " is a draft model: give it with --draft");
  for (const HeadFile& other : heads_)
    if (other.parameters().kind == kind)
      return input_error("--head gives two heads of kind " + std::string(name(kind)) + ": " + other.path() + " and " +
                         path + "; give one of a kind");
  heads_.push_back(std::move(opened));
  return {};
}

Status Session::open_heads(Heads heads) {
  if (asks_for(options_, SourceKind::kMtp)) {
    options_.heads = {model_->path()};
  }
  for (const std::string& head : options_.heads) SLUICE_TRY_STATUS(open_head(head));
  if (!heads_.empty()) auto_head_ = heads_.front().parameters().kind;
  if (heads == Heads::kGivenOrShipped) SLUICE_TRY_STATUS(take_shipped());
  SLUICE_TRY_STATUS(check_source_head());
  return take_cuts();
}

// The one that was made for this method, if it is there; for `auto`, only if it runs with the stages that were asked
// for. (Else take_cuts() says which ones it needs.)
Result<bool> Session::take_shipped_head(const std::string& method, bool for_auto) {
  const auto find = [&](bool of_these_stages) {
    return find_head(installation_folder() + "/heads", *model_, [&](const HeadParameters& p) {
      return p.kind != HeadKind::kDraft && method_of(p.kind) == method && (!of_these_stages || runs_with(p, options_));
    });
  };
  auto path = find(true);
  if (!path && !for_auto) path = find(false);
  if (path) SLUICE_TRY_STATUS(open_head(*path));
  return path.has_value();
}

// Lazy workers compute no states, which heads read.
Status Session::take_shipped() {
  if (!options_.lazy()) SLUICE_TRY_STATUS(take_shipped_heads());
  const bool auto_runs = compared_.empty() || std::ranges::count(compared_, kAutoMethod) > 0;
  if (!auto_runs || auto_head_ || !draft_worth_loading(options_, profile_)) return {};
  const auto path = shipped_draft();
  if (!path) return {};
  options_.drafts = {*path};
  draft_is_autos_ = !compared_.empty();
  return open_draft(*path);
}

std::span<const ModelFile> Session::drafts_for(const std::string& asked) const {
  if (draft_is_autos_ && asked != kAutoMethod) return {};
  return drafts_;
}

std::optional<std::string> Session::shipped_draft() const {
  return find_head(installation_folder() + "/heads", *model_,
                   [](const HeadParameters& p) { return p.kind == HeadKind::kDraft; });
}

// The heads that the methods need and were not given.
Status Session::take_shipped_heads() {
  if (compared_.empty() && !options_.heads.empty()) return {};
  for (const std::string& name : compared_.empty() ? std::vector{options_.request.method} : compared_) {
    if (name == kAutoMethod) {
      SLUICE_TRY_STATUS(take_head_of_auto());
    } else if (head_kind(name) && head_for(name) == nullptr) {
      SLUICE_TRY_STATUS(take_shipped_head(name, /*for_auto=*/false));
    }
  }
  return {};
}

// EAGLE-3's drafts no further than it is sure of.
Status Session::take_head_of_auto() {
  const auto kind = head_worth_loading(options_);
  if (!kind) return {};
  bool there = std::ranges::any_of(heads_, [&](const HeadFile& head) { return head.parameters().kind == *kind; });
  if (!there) {
    SLUICE_TRY(there, take_shipped_head(method_of(*kind), /*for_auto=*/true));
  }
  if (!there) return take_further_layer();
  auto_head_ = kind;
  if (kind == HeadKind::kEagle3) auto_p_min_ = policy::kSureChain;
  return {};
}

// The layer that came with the model, if one did.
Status Session::take_further_layer() {
  if (!HeadFile::open(model_->path(), *model_)) return {};
  options_.heads = {model_->path()};
  auto_head_ = HeadKind::kMtp;
  return open_head(model_->path());
}

Status Session::check_source_head() const {
  if (options_.heads.size() < 2 || !head_asked_for(options_)) return {};
  const std::vector<std::string> choosing = drafting_methods();
  for (const std::string& name : methods())
    if (std::find(choosing.begin(), choosing.end(), name) != choosing.end())
      return input_error("--source head: " + name + " reads whichever head is given, and --head gives " +
                         std::to_string(options_.heads.size()) + ": give one");
  return {};
}

// All that run share the stages: where SPD's head is among what they load, those that it was trained for.
Status Session::take_cuts() {
  for (const std::string& method : methods()) {
    const HeadFile* file = head_for(method);
    if (file == nullptr || file->parameters().kind != HeadKind::kSpd) continue;
    const HeadParameters& head = file->parameters();
    if (runs_with(head, options_)) {
      options_.cuts = inner_cuts(head);
      return {};
    }
    const std::string trained =
        "--head " + file->path() + " was trained for " + std::to_string(head.stages()) + " stages";
    if (options_.job && options_.cuts.empty())
      return input_error(trained + ", and there are " + std::to_string(options_.hosts.size()) +
                         " ranks: start as many as it has stages");
    if (!options_.hosts.empty() && options_.cuts.empty())
      return input_error(trained + ", and --hosts names " + std::to_string(options_.hosts.size()) +
                         ": name a host for each; one may be named several times");
    std::string cuts;
    for (const int32_t cut : inner_cuts(head)) cuts += (cuts.empty() ? "" : ",") + std::to_string(cut);
    return input_error(trained + ": leave --stages and --cuts out, or give --cuts " + cuts);
  }
  return {};
}

std::vector<std::string> Session::methods() const {
  std::vector<std::string> methods;
  for (const std::string& asked : compared_) methods.push_back(method(asked));
  return methods.empty() ? std::vector{method()} : methods;
}

// A method that was made for a kind of head gets one of it. Another reads the head that was given, as a source; where
// methods are compared, only if --source names it. (Where the one that is given is of the wrong kind, the engine says
// so.)
const HeadFile* Session::head_for(const std::string& asked) const {
  const auto wanted = head_kind(method(asked));
  for (const HeadFile& head : heads_)
    if (wanted == head.parameters().kind) return &head;
  if (!compared_.empty() && (wanted || !head_asked_for(options_))) return nullptr;
  return options_.heads.size() == 1 ? &heads_.front() : nullptr;
}

}  // namespace sluice
