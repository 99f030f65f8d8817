#include "serve/engine_life.h"

#include <atomic>
#include <utility>
#include <variant>

#include "method/methods.h"
#include "serve/engine_thread.h"
#include "serve/engine_wire.h"
#include "serve/frame_channel.h"
#include "serve/status_pages.h"
#include "session/options.h"

namespace sluice {

namespace {

// The engine, as the other side asks it. All that it says may come from any thread.
class Servant {
 public:
  Servant(const Session& session, std::unique_ptr<Engine> engine, size_t most_waiting, FrameChannel& channel)
      : channel_(channel),
        engine_(session, std::move(engine), most_waiting,
                {.broken = [this](const Error& error) { break_down(error); },
                 .load = [this](const AnswerEngine::Load& load) { say(LoadChanged{load}); }}) {}

  void obey(JobGiven& given) {
    const auto tell = [this, id = given.id](AnswerNews news) { say(JobTold{id, std::move(news)}); };
    engine_.submit(given.id, std::move(given.job), tell);
  }
  void obey(const JobCancelled& cancelled) { engine_.cancel(cancelled.id); }
  void obey(const LookAsked& asked) {
    const auto tell = [this, watch = asked.watch](EngineReport report, Steps steps) {
      report.resident_bytes = resident_bytes();
      say(LookTold{.report = std::move(report), .watch = watch, .steps = std::move(steps)});
    };
    if (asked.watch)
      engine_.watch(tell);
    else
      engine_.look([tell](const EngineReport& report) { tell(report, {}); });
  }
  void obey(const WatchEnded&) { engine_.unwatch(); }

 private:
  // With that it ends: the answers go on with another engine, whatever this one says of them now.
  void break_down(const Error& error) {
    say(EngineFailed{error});
    broken_ = true;
  }
  void say(const FromEngine& message) {
    if (!broken_) channel_.send(bytes_of(message));
  }

  FrameChannel& channel_;
  std::atomic<bool> broken_ = false;
  EngineThread engine_;
};

}  // namespace

std::vector<std::string> methods_at_hand(const Session& session, const Engine& engine) {
  std::vector<std::string> methods = {kAutoMethod};
  for (const std::string& name : method_names())
    if (engine.check_request(session.spec({Token(0)}, name))) methods.push_back(name);
  return methods;
}

void live_as_engine(const Session& session, int32_t concurrency, size_t most_waiting, int socket) {
  FrameChannel channel(socket);
  auto engine = session.make_engine(concurrency);
  if (!engine) return channel.send(bytes_of(EngineFailed{engine.error()}));
  channel.send(
      bytes_of(EngineOpened{.about = (*engine)->trace_header(), .methods = methods_at_hand(session, **engine)}));
  Servant servant(session, std::move(*engine), most_waiting, channel);
  while (const auto frame = channel.receive()) {
    auto order = to_engine(*frame);
    if (!order) return channel.send(bytes_of(EngineFailed{order.error()}));
    std::visit([&](auto& one) { servant.obey(one); }, *order);
  }
}

}  // namespace sluice
