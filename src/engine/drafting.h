// Asks requests for guesses: their methods, and the sources behind those.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/chance.h"
#include "engine/policy.h"
#include "engine/request.h"
#include "engine/room.h"
#include "wire/batch.h"
#include "wire/report.h"

namespace sluice {

// What follows a node, for a draft model or a head to say.
struct Question {
  Planned row;
  bool blocks = false;   // its request has nothing under way
  bool as_pays = false;  // to be left out where its row isn't worth it
};

// What a guess must be worth to enter now.
struct Bar {
  double floor = 0.0;          // a log: below it none does,
  bool first_is_free = false;  // but the likeliest of all where nothing else enters
};

// What requests would do now.
struct Proposals {
  std::vector<Planned> rows;                             // of the target: roots and guesses
  std::vector<std::vector<Question>> questions;          // by model
  std::vector<std::pair<Request*, std::string>> broken;  // whose method or source failed, and how; nothing of theirs
  bool asked = false;                                    // sources that answer at once
};

// Whether it pays to ask sources that answer at once.
//
// Asking takes time of the coordinator's, in which the first stage waits. Told from what the questions of late took and
// what came of them.
class Asking {
 public:
  // To be called once for each batch.
  bool pays();
  // After it was asked: what that took, and what the guesses that entered save.
  void learn(double seconds, double saved);

 private:
  double seconds_ = 0.0, saved_ = 0.0;  // running averages
  int64_t n_ = 0, passed_over_ = 0;     // batches for which was asked, and since then not
};

class Drafting {
 public:
  // row_budget: rows in a batch; choose: how rule `reject` draws guesses.
  Drafting(size_t row_budget, Choose choose) : row_budget_(row_budget), choose_(std::move(choose)) {}

  // Asks each method for its proposal, so trees may grow, and lets sources that answer at once do so. requests: those
  // that run, in turn. rooms: by model. bar: what a guess must be worth.
  Proposals ask(std::span<Request* const> requests, std::span<const Room> rooms, const Bar& bar);
  // Which rows of these proposals enter the target, what the guesses among them save, and what it took to ask and to
  // choose. Seconds; on a simulated clock it took nothing.
  void chosen(const Proposals& proposals, std::span<const Planned> rows, double saved, double took);

  // What asking took and what came of it is forgotten.
  void forget() {
    asking_ = {};
    over_share_ = policy::kMostOverShare;
  }

  // A draft model or head has answered. Rule `reject`: what was drawn from the answer, if the node has entered the
  // target, for its row there.
  std::optional<Amendment::LateDraws> take(Request& request, size_t source, NodeId node, const Drafted& answer) const;

 private:
  void ask(Request& request, uint32_t turn, const Idle& idle, double doubt, Proposals& proposals) const;
  std::optional<Amendment::LateDraws> draw(Request& request, size_t source, NodeId id, std::vector<Candidate> q) const;

  size_t row_budget_;
  Choose choose_;
  Asking asking_;
  double over_share_ = policy::kMostOverShare;  // for so many times its share of a batch a request is asked
};

}  // namespace sluice
