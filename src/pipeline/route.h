// Where what comes of a batch goes: the same whatever carries it.
#pragma once

#include "pipeline/worker.h"
#include "wire/batch.h"
#include "wire/report.h"

namespace sluice {

// What carries the messages of one stage. Each way is FIFO for itself.
class Links {
 public:
  virtual ~Links() = default;

  // To the next stage of its model.
  virtual void pass_on(Batch batch) = 0;
  // To the workers of all heads; when they have come, the coordinator is told (TapsArrived).
  virtual void tap(Taps taps) = 0;
  // To the coordinator, which is told of a report at once.
  virtual void report(StageReport report) = 0;
  virtual void conclude(Outcome outcome) = 0;
  // Of a head that is elsewhere, as its stages are: the same to the coordinator.
  virtual void arrived(TapsArrived) { SLUICE_CHECK(false, "taps of stages elsewhere come to a head elsewhere"); }
};

// Sends what a stage has made of a batch, in the order that the receivers count on.
// begin, end: when it computed, seconds on the executor's clock. last: it is the last stage of its model.
void route(Worker::Done done, ModelId model, StageId stage, bool last, double begin, double end, Links& links);

// How many rows with hidden states the states come to on a link.
int32_t rows_of(const Taps& taps);

}  // namespace sluice
