// The coordinator's side of one model: its cells and who holds them, what its workers have to be told, what is under
// way.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/head_feed.h"
#include "engine/policy.h"
#include "engine/request.h"
#include "engine/room.h"
#include "engine/sequence_news.h"
#include "engine/traffic.h"
#include "tree/residency.h"
#include "wire/batch.h"

namespace sluice {

// How sequences are dealt with whose models fold what they know of them.
struct Folding {
  size_t most_sequences = policy::kMostFolded;  // at a time
  // A prompt with so many tokens that are not there yet gets a checkpoint, so many tokens before its end.
  size_t worth_a_checkpoint = policy::kWorthACheckpoint, behind_checkpoint = policy::kBehindCheckpoint;
};

// Invariant: a cell is free if and only if nobody holds it. Holders are the sequences that have committed its token and
// the node whose token is in it. So whatever a Residency holds it takes and lets go here, and the workers are told.
class Lane {
 public:
  Lane(ModelId model, int32_t n_cells, size_t n_stages)
      : model_(model), n_cells_(n_cells), cells_(n_cells), traffic_(n_stages, /*sends_ahead=*/model == kTarget) {}

  ModelId model() const { return model_; }
  int32_t n_cells() const { return n_cells_; }
  size_t free_cells() const { return cells_.available(); }
  size_t held_cells() const { return static_cast<size_t>(n_cells_) - cells_.available(); }
  // Of so many cells that requests have reserved, each for itself, how many there must be: what several share is one.
  size_t needed(size_t reserved) const { return reserved - cells_.shared(); }
  // How many of the request's committed cells behind the first `kept` are others' too.
  size_t shared_behind(const Request& request, size_t kept) const;
  // What it can take. prompts: some wait to enter the target.
  Room room(bool prompts, double now) const;

  // Its workers fold what is known of a path: a sequence goes on behind all that it has committed, from a checkpoint,
  // or from nothing.
  void fold(const Folding& folding) { folding_ = folding; }
  // Its workers forget what windows have left behind: a sequence goes on no more than so many tokens before the most
  // that it has had, or from nothing.
  void limit_cuts(size_t cut_back) { cut_back_ = cut_back; }
  // Whether there may be one more sequence, or, where one takes over another's, as many as there are.
  bool has_room_for(size_t more) const { return !folding_ || n_sequences_ + more <= folding_->most_sequences; }
  // With how many of these of its committed tokens a request can go on in another's sequence, or beside it.
  size_t can_go_on(const Request& from, size_t kept) const;

  // The stage of the target on whose device it runs, a pass at a time.
  void share(size_t stage) { shares_ = stage; }
  bool shares_first_stage() const { return shares_ == 0; }
  // When stages of this model are lost, its worker is too.
  void lose_with_target() { lost_with_target_ = true; }
  bool is_lost_with(ModelId model) const { return model == model_ || (model == kTarget && lost_with_target_); }

  Traffic& traffic() { return traffic_; }
  const Traffic& traffic() const { return traffic_; }
  void add_head(HeadFeed head) { head_ = std::move(head); }
  HeadFeed* head() { return head_ ? &*head_ : nullptr; }  // null: it is none
  const HeadFeed* head() const { return head_ ? &*head_ : nullptr; }

  // The request's sequence begins, with nothing committed.
  void open(Request& request) {
    ++n_sequences_;
    news_.open(request.sequence, request.spec.sampling, plan_checkpoint(request, 0));
  }
  // It begins with the first `length` tokens that another has committed, in the same cells. REQUIRES: length is no more
  // than can_share().
  void fork(const Request& from, Request& request, size_t length);
  // With how many of its committed tokens another sequence may begin.
  size_t can_share(const Request& from) const;
  // A request goes on in the sequence of `previous`, which has ended, after the first `kept` of its committed tokens;
  // that one holds nothing any more. REQUIRES: kept is no more than there are.
  void continue_from(Request& previous, Request& request, size_t kept);
  // The request's sequence ends, of whose tree nothing is left.
  void close(Request& request);
  // The same, but it is going to begin again with the same tokens, and will be given the same cells in the same order,
  // as long as others do not need them: a stage may still hold those tokens there.
  void interrupt(Request& request);
  // It is not going to begin again.
  void abandon(SequenceId sequence) { cells_.close(sequence); }

  // What the next batch, of these rows, has to tell first.
  std::vector<PathUpdate> tell(std::span<const Planned> plan);
  // A row enters with that batch, in the cell that is returned: the next of the request's committed tokens, or a node.
  // REQUIRES: a free cell.
  Cell enter_prompt(Request& request);
  Cell enter_node(Request& request, NodeId node, BatchId batch, uint16_t row);
  // A node is verified: from now on its sequence holds the cell. A no-op if the node has not entered.
  void commit(Request& request, NodeId node);
  // Nodes are dead, and nobody holds their cells.
  void prune(Request& request, std::span<const NodeId> nodes);
  // Which of their rows are under way and need not be computed: of all requests since it was last asked. To be told
  // before the next batch.
  Amendment take_dead() { return std::exchange(dead_, {}); }
  // All nodes of the request are as if they had never entered.
  void forget_nodes(Request& request);

  // Its workers are others now, which hold nothing. REQUIRES: every sequence is closed, but for those that broke.
  void start_over() {
    news_ = {};
    dead_ = {};
    n_sequences_ = 0;
    traffic_.lose_all();
  }

  // After whatever changes how many of its reserved cells a request has taken.
  void count_promised(Request& request);

 private:
  // Where in the request's prompt, of which `kept` tokens are there, its workers are to keep what is folded.
  int32_t plan_checkpoint(Request& request, size_t kept);

  Residency& there(Request& request) const { return request.residency(model_); }
  const Residency& there(const Request& request) const { return request.residency(model_); }

  ModelId model_;
  int32_t n_cells_;
  std::optional<size_t> shares_;
  bool lost_with_target_ = false;
  CellPool cells_;
  std::optional<Folding> folding_;  // if its workers fold
  std::optional<size_t> cut_back_;  // if they have windows
  size_t n_sequences_ = 0;
  size_t promised_ = 0;  // cells that the committed tokens and roots of requests may still ask for
  SequenceNews news_;
  Amendment dead_;
  Traffic traffic_;
  std::optional<HeadFeed> head_;
};

}  // namespace sluice
