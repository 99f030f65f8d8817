// A request: a prompt, how to go on from it, and everything that is known of the answer so far.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/choice.h"
#include "engine/guide.h"
#include "engine/means.h"
#include "engine/policy.h"
#include "engine/stage_clock.h"
#include "pipeline/remote_stages.h"
#include "source/fusion.h"
#include "tree/residency.h"
#include "tree/token_tree.h"
#include "wire/report.h"
#include "wire/sampling.h"

namespace sluice {

using RequestId = Id<struct RequestTag>;

enum class Finish : uint8_t {
  kNone,        // still running
  kStop,        // the model ended its answer
  kLength,      // max_tokens or the context was reached
  kCancelled,   // stopped from outside
  kFailed,      // something broke: Request::error says what
  kFormFailed,  // the answer can't be kept to its grammar any further, as Request::error says
};
inline constexpr Choice<Finish> kFinishes[] = {{"running", Finish::kNone},  {"stop", Finish::kStop},
                                               {"length", Finish::kLength}, {"cancelled", Finish::kCancelled},
                                               {"failed", Finish::kFailed}, {"form_failed", Finish::kFormFailed}};
// Whether Request::error says why it has ended.
inline bool has_error(Finish finish) { return finish == Finish::kFailed || finish == Finish::kFormFailed; }
inline const char* name(Finish finish) { return name_of(kFinishes, finish); }

struct RequestSpec {
  std::vector<Token> prompt;  // at least one token
  // How the answer begins, as another engine has generated it: this one goes on from there, to the tokens to which that
  // one would have come (under Rule::kMatch).
  std::vector<Token> said = {};
  SamplingParams sampling;  // where the answer begins, the engine sets
  int32_t max_tokens = 256;
  std::string method = "specpipe";
  std::vector<SourceKind> sources;  // of the method, if it speculates; several are fused
  MethodOptions method_options;
  bool ignore_end = false;  // tokens that end generation are like any others
  bool logprobs = false;    // Progress tells them, with those of SamplingParams::top_logprobs
  // Goes on in the sequence of this finished request: what its committed tokens share with `prompt` is not computed
  // again.
  std::optional<RequestId> continues;
  // Begins with the cells of what `prompt` has in common with this request, which may be running. It waits for them as
  // long as that one's prompt is computed; if they are gone, it computes all itself. Not with `continues`.
  std::optional<RequestId> shares;
};

// What must be right of a request whatever serves it, in a context of so many tokens by a model of `n_tokens`. Errors
// (kInput): a prompt that is empty, too long or holds other tokens; sampling parameters, options of the method or an
// answer's length out of range.
Status check(const RequestSpec& spec, int32_t context, int32_t n_tokens);

// Counts and times of one request; seconds on the executor's clock.
struct RequestStats {
  double submitted = 0, first_token = 0, last_token = 0;  // of those that were generated here
  int64_t prompt_tokens = 0, reused_tokens = 0;
  int64_t drafted = 0;        // nodes that entered the pipeline as guesses, and those that came true before they could
  int64_t accepted = 0;       // tokens that the tree held when the target named them
  int64_t verifications = 0;  // batches of the target that brought tokens
  int64_t flushes = 0;  // tokens that it did not hold, the last one of an answer cut short by its length not counted
  int64_t replays = 0;  // times that stages were lost, and it went on from its tokens
  std::vector<int32_t> runs = {0};  // lengths of the runs of accepted tokens, between flushes; the last one goes on
};

// How often guesses come true, of as often as their sources say.
class Trust {
 public:
  // `expected`: the probability that one of these guesses comes, as their source said; whether one came.
  void learn(double expected, bool came) {
    expected_ += expected - policy::kNewestGuess * expected_;
    came_ += (came ? 1.0 : 0.0) - policy::kNewestGuess * came_;
  }
  // At most 1; `before` is what is believed as long as little was seen.
  double share(double before) const {
    return std::min(1.0, (came_ + policy::kTrustBefore * before) / (expected_ + policy::kTrustBefore));
  }

 private:
  double expected_ = 0.0, came_ = 0.0;
};

struct Request {
  Request(RequestId id, RequestSpec spec);

  RequestId id;
  SequenceId sequence;     // none before it is admitted, and when its cells were needed after its end
  SequenceId interrupted;  // that it had when stages were lost, and will have again
  RequestSpec spec;
  RequestStats stats;
  Finish finish = Finish::kNone;
  Error error;  // of a failed one

  std::vector<Token> tokens;  // the prompt, then the answer; the last one is the tree's root
  size_t n_prompt() const { return spec.prompt.size(); }
  size_t n_answer() const { return tokens.size() - spec.prompt.size(); }
  size_t n_generated() const { return n_answer() - spec.said.size(); }  // here
  size_t in_common = 0;           // tokens with whom it continues or shares cells, its last prompt token not counted
  size_t reserved_cells = 0;      // by every model, for its committed tokens and the root
  std::vector<size_t> promised;   // of them, by model, how many it has not taken yet, as last counted
  std::optional<RequestId> heir;  // that will go on in its sequence

  // What a model knows of the sequence: the target for kTarget, else a draft model.
  Residency& residency(ModelId model);
  const Residency& residency(ModelId model) const;
  // Of the reserved cells, how many it has not taken yet; none of one that does not run.
  size_t cells_to_come(ModelId model) const;
  // Committed tokens before the root that have not entered the model: they enter as prompt rows. Of the target that is
  // the prompt but for its last token, the first root; a draft model also misses tokens that it had not guessed.
  size_t prompt_rows_left(ModelId model) const { return tokens.size() - 1 - residency(model).committed().size(); }
  // All of its prompt has entered the target, and its root has still to.
  bool root_waits() const;

  Speculation speculation;
  ActiveMethod method;
  std::vector<SourceSlot> sources;  // empty if the method has never speculated
  // By other means from now on. What has read the text already goes on in place of what would have to read it.
  void take(Means means);
  std::optional<size_t> source_of(ModelId draft) const;
  bool asks_head() const;
  std::string source_name() const;
  Fusion fusion;                 // of a draft model and n-grams
  std::unique_ptr<Guide> guide;  // if the answer is of a grammar
  // What a source said of a node, as far as it may come.
  std::vector<Candidate> permitted(NodeId node, std::vector<Candidate> said) const {
    if (guide == nullptr) return said;
    return guide->permitted(std::span(tokens).subspan(n_prompt()), speculation.tree.path(node), std::move(said));
  }

  // The target has named the token after the root, which is committed: the token is the root now, its sources know it,
  // and what hung elsewhere is gone. odds: as in Accepted.
  struct Step {
    std::vector<NodeId> pruned;
    bool flush = false;     // the tree did not hold the token, although it might have
    double expected = 0.0;  // the probability, as guessed, with which one of the root's children comes that had entered
    bool came = false;      // whether one of them did
  };
  Step advance(Token next, std::span<const BendOdds> odds, double now);
  // What the models knew of it is lost: it goes on from its tokens as from a prompt. Gives the nodes that are gone.
  std::vector<NodeId> start_over();
  // Its method remembers nothing of the tree, which stays.
  void renew_method();
  // The clocks of the target's stages when the first token of the answer came, and when it ended.
  std::vector<StageClock> decode_begin, decode_end;
  Relayed relayed_begin, relayed_end;  // what had gone by way of the coordinator's process by then
  // Of the newest tokens; none before there are enough.
  std::optional<double> seconds_per_token() const;
  // How often guesses of late came true, of as often as their sources said; at most 1.
  double trust() const { return trust_.share(trust_before); }
  double trust_before = 1.0;  // what others have shown
  // When its method was last asked, with this root, nothing of it entered: the worth (a log) of the best guess that it
  // had. As long as the root stays the same would occur to it again.
  struct PassedOver {
    NodeId root;
    double worth;
  };
  std::optional<PassedOver> passed_over;
  // The last batch in which tokens entered the target that are committed, and how many there are with it: one entry a
  // batch, rising.
  std::vector<std::pair<BatchId, size_t>> committed_in;
  void note_committed(BatchId batch);
  BatchId last_verified;  // in which the newest verified token entered the target; none before the first
  BatchId first_batch;    // outcomes of older batches concern what the sequence was before
  bool has_begun() const { return first_batch.valid(); }

 private:
  void learn_pace(double now);

  double seconds_per_token_ = 0.0;  // a running average
  Trust trust_;
};

// A row that is to enter a model.
struct Planned {
  Request* request = nullptr;  // whose it is
  NodeId node;                 // none: the next prompt row
  uint32_t turn = 0;           // its request's, among those that run
  bool root = false;           // the node is the root
  double worth = 0.0;  // log of the probability that the row is of use, its source's word taken for what it has shown
};

}  // namespace sluice
