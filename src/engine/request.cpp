#include "engine/request.h"

#include <algorithm>
#include <utility>

#include "engine/policy.h"
#include "method/option_table.h"
#include "verify/sampler.h"

namespace sluice {

namespace {

std::vector<Token> text_of(const RequestSpec& spec) {
  std::vector<Token> tokens = spec.prompt;
  tokens.insert(tokens.end(), spec.said.begin(), spec.said.end());
  return tokens;
}

auto& of_model(auto& speculation, ModelId model) {
  return model == kTarget ? speculation.target : speculation.drafts[static_cast<size_t>(model.value) - 1];
}

}  // namespace

Status check(const RequestSpec& spec, int32_t context, int32_t n_tokens) {
  if (spec.prompt.empty()) return input_error("the prompt is empty: it must give at least one token");
  if (spec.prompt.size() >= static_cast<size_t>(context))
    return input_error("the prompt has " + std::to_string(spec.prompt.size()) +
                       " tokens, which leaves no room for an answer in a context of " + std::to_string(context) +
                       ": shorten it, or give a larger --context if the model was trained for one");
  if (spec.continues && spec.shares)
    return input_error("a request continues another or shares the cells of one, not both");
  if (spec.max_tokens < 1) return input_error("--max-tokens must be at least 1");
  const size_t longest =
      std::min(static_cast<size_t>(spec.max_tokens), static_cast<size_t>(context) - spec.prompt.size());
  if (spec.said.size() >= longest)
    return input_error("the answer has " + std::to_string(spec.said.size()) + " tokens already, and may have " +
                       std::to_string(longest));
  for (const Token token : text_of(spec))
    if (token < 0 || token >= n_tokens)
      return input_error("the prompt holds token " + std::to_string(token) + "; the model's ids go from 0 to " +
                         std::to_string(n_tokens - 1));
  SLUICE_TRY_STATUS(check(spec.sampling, n_tokens));
  return check(spec.method_options);
}

Request::Request(RequestId request_id, RequestSpec request_spec)
    : id(request_id),
      spec(std::move(request_spec)),
      tokens(text_of(spec)),
      speculation{
          .tree = TokenTree(tokens.back(), static_cast<int32_t>(tokens.size()) - 1), .target = {}, .drafts = {}} {
  stats.prompt_tokens = static_cast<int64_t>(spec.prompt.size());
  spec.sampling.answer_from = static_cast<int32_t>(spec.prompt.size());
}

const Residency& Request::residency(ModelId model) const { return of_model(speculation, model); }
Residency& Request::residency(ModelId model) { return of_model(speculation, model); }

size_t Request::cells_to_come(ModelId model) const {
  if (finish != Finish::kNone || !sequence.valid()) return 0;
  const Residency& there = residency(model);
  const size_t taken = there.committed().size() + (there.entered(speculation.tree.root().id) ? 1 : 0);
  return reserved_cells - std::min(reserved_cells, taken);
}

bool Request::root_waits() const {
  return prompt_rows_left(kTarget) == 0 && !speculation.target.entered(speculation.tree.root().id);
}

void Request::note_committed(BatchId batch) {
  const size_t n = speculation.target.committed().size();
  if (!committed_in.empty() && committed_in.back().first == batch)
    committed_in.back().second = n;
  else
    committed_in.emplace_back(batch, n);
}

void Request::take(Means means) {
  method = std::move(means.method);
  passed_over.reset();
  if (!method.traits.speculates) return;
  std::unique_ptr<Source> reader;
  for (SourceSlot& old : sources)
    if (old.local) reader = std::move(old.local);
  for (SourceSlot& slot : means.sources) {
    if (!slot.local) continue;
    if (reader)
      slot.local = std::move(reader);
    else if (has_begun())  // else it will, when it begins
      slot.local->observe(tokens);
  }
  sources = std::move(means.sources);
  speculation.n_sources = sources.size();
}

bool Request::asks_head() const {
  return std::any_of(sources.begin(), sources.end(), [](const SourceSlot& slot) { return slot.is_head; });
}

std::optional<size_t> Request::source_of(ModelId draft) const {
  for (size_t i = 0; i < sources.size(); ++i)
    if (sources[i].draft && static_cast<int32_t>(*sources[i].draft) + 1 == draft.value) return i;
  return std::nullopt;
}

Request::Step Request::advance(Token next, std::span<const BendOdds> odds, double now) {
  TokenTree& tree = speculation.tree;
  const NodeId old_root = tree.root().id;
  Step step;
  for (NodeId child = tree.root().newest_child; child.valid(); child = tree.node(child).older_sibling) {
    if (!speculation.target.entered(child)) continue;
    const TokenTree::Node& node = tree.node(child);
    step.expected += node.probability;
    step.came = step.came || node.token == next;
  }
  fusion.learn(old_root, next);
  if (!odds.empty()) method.policy->learn(odds);
  auto advance = tree.advance(next);
  fusion.forget(advance.pruned);
  tokens.push_back(next);
  for (const SourceSlot& slot : sources)
    if (slot.local) slot.local->observe({&next, 1});
  // Of the token beyond the last position there was no guess: with it the answer ends.
  const bool guessed = tree.root().position <= speculation.last_position;
  step.flush = !advance.hit && guessed && method.traits.speculates;
  step.pruned = std::move(advance.pruned);
  stats.accepted += advance.hit;
  stats.drafted += advance.hit && !speculation.target.entered(tree.root().id);
  stats.flushes += step.flush;
  stats.runs.back() += advance.hit;
  if (step.flush) stats.runs.push_back(0);
  trust_.learn(step.expected, step.came);
  learn_pace(now);
  if (n_generated() == 1) stats.first_token = now;
  stats.last_token = now;
  return step;
}

std::vector<NodeId> Request::start_over() {
  ++stats.replays;
  committed_in.clear();
  last_verified = BatchId();
  std::vector<NodeId> gone = speculation.tree.renew();
  fusion.forget(gone);
  renew_method();
  return gone;
}

void Request::renew_method() {
  passed_over.reset();
  auto anew = make_method(std::string(method.name), spec.method_options);
  SLUICE_CHECK(anew, "a method that was made can be made again");
  method = std::move(*anew);
}

void Request::learn_pace(double now) {
  if (n_generated() == 1) return;
  const double seconds = now - stats.last_token;
  const double weight = std::max(policy::kNewestToken, 1.0 / static_cast<double>(n_generated() - 1));
  seconds_per_token_ += weight * (seconds - seconds_per_token_);
}

std::optional<double> Request::seconds_per_token() const {
  if (n_generated() <= policy::kPaceTokens) return std::nullopt;
  return seconds_per_token_;
}

std::string Request::source_name() const {
  std::string text;
  for (const SourceSlot& slot : sources) text += (text.empty() ? "" : ",") + slot.name();
  return text.empty() ? "none" : text;
}

}  // namespace sluice
