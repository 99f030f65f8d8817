// When stages of a model are lost.
//
// A request is its tokens. All else, the cells that models filled for it, the guesses below its root, what was under
// way, can be had again. So when the target's are lost it goes back to the head of the queue and begins as one whose
// prompt is all that it has said so far. What comes after is what would have come: logits depend on the path alone,
// draws on seed and position. Draft models and heads begin anew with it, although theirs was not lost: then a request
// knows one way to begin, and what heads read of the target comes to them with the prompt. So when a head on a host of
// its own is lost, that is as if stages were: the states that it had come no other way. When a draft model's are lost,
// it takes that prompt alone, and the target goes on.
#include <utility>

#include "engine/engine.h"

namespace sluice {

// The model's stages hold nothing any more.
void Engine::start_over(ModelId model) {
  const std::vector<Request*> running = std::exchange(running_, {});
  for (Request* request : running) prune(*request, request->start_over(), Fate::kPruned);
  admission_.start_over(running);
  for (Lane& lane : lanes_)
    if (lane.is_lost_with(model)) lane.start_over();
}

// Its stages hold nothing any more, and what it was asked is asked again.
void Engine::read_anew(Lane& draft) {
  admission_.read_anew(draft);
  for (Request* request : running_) request->renew_method();
}

void Engine::give_up(const StagesLost& lost) {
  start_over(lost.model);
  while (admission_.waiting() > 0) end_with(admission_.drop_first(), lost.error);
  no_longer_lacks(lost.model);  // as it did
  lacking_.push_back({.stages = lost});
}

Status Engine::look_for_stages() {
  SLUICE_TRY_STATUS(take_in(/*waits=*/false));
  ask_for_stages();
  return {};
}

// Somebody may have come back meanwhile.
void Engine::ask_for_stages() {
  for (Lacking& one : lacking_)
    if (!std::exchange(one.asked, true)) executor_->resume(one.stages.model, one.stages.generation);
}

void Engine::no_longer_lacks(ModelId model) {
  std::erase_if(lacking_, [&](const Lacking& one) { return one.stages.model == model; });
}

}  // namespace sluice
