#include "pipeline/route.h"

#include <utility>

namespace sluice {

void route(Worker::Done done, ModelId model, StageId stage, bool last, double begin, double end, Links& links) {
  if (done.taps) links.tap(std::move(*done.taps));
  // Before the outcome: who decides what comes next must know that the stage is free.
  links.report({.stage = stage,
                .batch = done.onward.id,
                .begin = begin,
                .end = end,
                .rows_computed = static_cast<uint16_t>(done.rows_computed),
                .model = model,
                .lookups = done.lookups,
                .out_of_range = done.out_of_range});
  if (last) {
    done.outcome.model = model;
    links.conclude(std::move(done.outcome));
  } else {
    links.pass_on(std::move(done.onward));
  }
}

int32_t rows_of(const Taps& taps) { return static_cast<int32_t>(taps.rows.size() * taps.layers.size()); }

}  // namespace sluice
