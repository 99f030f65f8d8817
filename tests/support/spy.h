// An executor that tells what passes through it, and may change it.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "pipeline/executor.h"

namespace sluice::test {

class Spy final : public Executor {
 public:
  std::function<void(ModelId, Batch&)> on_submit;
  std::function<void(Event&)> on_event;
  std::function<void(ModelId, uint32_t)> on_resume;

  explicit Spy(std::unique_ptr<Executor> executor) : executor_(std::move(executor)) {}

  Event next() override {
    Event event = executor_->next();
    if (on_event) on_event(event);
    return event;
  }
  std::optional<Event> poll() override {
    auto event = executor_->poll();
    if (event && on_event) on_event(*event);
    return event;
  }
  void submit(ModelId model, Batch batch) override {
    if (on_submit) on_submit(model, batch);
    executor_->submit(model, std::move(batch));
  }
  void amend(ModelId model, Amendment amendment) override { executor_->amend(model, std::move(amendment)); }
  void resume(ModelId model, uint32_t generation) override {
    if (on_resume) on_resume(model, generation);
    executor_->resume(model, generation);
  }
  void wake_at(double time) override { executor_->wake_at(time); }
  double now() const override { return executor_->now(); }
  bool simulated() const override { return executor_->simulated(); }
  Exactness exactness() const override { return executor_->exactness(); }
  const char* name() const override { return executor_->name(); }

 private:
  std::unique_ptr<Executor> executor_;
};

}  // namespace sluice::test
