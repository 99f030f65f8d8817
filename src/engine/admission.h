// Who gets cells, and when.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/lane.h"
#include "engine/request.h"

namespace sluice {

// All requests from their submission to their release: who waits for cells, who holds them, who goes on from whom, who
// shares whose. A request begins when there are cells for all of its tokens in every model, in the order of submission;
// until then it waits, and lets others go first only while the prompt is computed of which it will share cells. What
// finished requests still hold for those that continue them is given up for it, the oldest first.
class Admission {
 public:
  // REQUIRES: the lanes outlive this.
  Admission(std::span<Lane> lanes, size_t most_waiting) : lanes_(lanes), most_waiting_(most_waiting) {}

  // Whether a request could have so many cells if no other was there, and wait for them.
  Status check_room(size_t cells) const;

  // A request that waits for so many cells. REQUIRES: check_room(); what it continues has finished and has no heir yet.
  Request& add(RequestSpec spec, size_t cells);

  size_t waiting() const { return waiting_.size(); }
  // The first that waits for nothing but cells, if there is room for it: it holds its cells then and has a sequence,
  // its predecessor's if it continues one, which is forgotten. Null: it must wait.
  Request* next();
  // What models knew of sequences is lost. Those who run wait again, before all others, and begin with the tokens that
  // they have by then, in the cells that they had; finished ones hold nothing any more. REQUIRES: of the trees of
  // `running` nothing has entered.
  void start_over(std::span<Request* const> running);
  // What this draft model knew of sequences is lost: it takes as prompts what requests have said, and they go on.
  void read_anew(Lane& lane);
  // Out of the queue: the first, or one that has not begun. REQUIRES: waiting() > 0.
  Request& drop_first();
  void withdraw(Request& request);

  // REQUIRES: it is there.
  Request& find(RequestId id);
  const Request& find(RequestId id) const;
  // Null if it has been released.
  Request* find_if_there(RequestId id);
  // Who speaks for a sequence; null: nobody any more.
  Request* holder(SequenceId sequence);
  // Forgets a finished request and frees its cells, and what it continues if it has never begun.
  void release(RequestId id);

  // After whatever changes how many of its reserved cells a request has taken.
  void count_promised(Request& request);

 private:
  // Whom the request continues or shares cells with, if that is still there and whole; null: nobody.
  Request* origin(const Request& request);
  bool waits_for_origin(const Request& request);
  // With what it would begin now: null, or its origin that has cells, and with how many of their tokens by model.
  struct Start {
    Request* origin = nullptr;
    std::vector<size_t> kept;
  };
  Start start_of(const Request& request);
  bool make_room(const Request& request);
  bool fits(const Request& request);
  SequenceId sequence_for(Request& request);
  void begin(Request& request);
  void interrupt(Request& request);
  void abandon(Request& request);
  void let_go(Request& request);
  void give_up_cells(Request& request);

  std::span<Lane> lanes_;
  size_t most_waiting_;
  std::map<RequestId, Request> requests_;
  std::unordered_map<SequenceId, Request*> by_sequence_;
  std::deque<Request*> waiting_;  // by arrival
  size_t reserved_ = 0;  // cells of every model that belong to requests: committed tokens, roots and those to come
  int32_t next_request_ = 0, next_sequence_ = 0;
};

}  // namespace sluice
