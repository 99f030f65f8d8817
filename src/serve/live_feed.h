// Tells pages what the engine does, as long as one of them watches.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <mutex>
#include <string>

#include "serve/answer_engine.h"
#include "serve/live_streams.h"

namespace sluice {

// The engine is asked now and then; while nobody watches it is not, and records nothing. Thread safety: any thread.
class LiveFeed : public std::enable_shared_from_this<LiveFeed> {
 public:
  // first: what each page is told first. REQUIRES: the threads, one, outlive it; the engine's outlives end().
  LiveFeed(AnswerEngine& engine, std::string first, boost::asio::thread_pool& threads);

  // Whether it is told from now on: there may be policy::kMostWatching, and none after end().
  bool add(const std::shared_ptr<Exchange>& exchange);
  // Ends all streams.
  void end();
  size_t watching() const;

 private:
  void remove(const std::weak_ptr<Exchange>& exchange);
  void look();
  void look_later();
  void tell(const EngineReport& report, const Steps& steps);

  AnswerEngine& engine_;
  const std::string first_;
  boost::asio::thread_pool& threads_;

  mutable std::mutex mutex_;
  boost::asio::steady_timer timer_;
  LiveStreams streams_;
  bool looking_ = false;  // as long as somebody watches
  bool asked_ = false;    // and the engine has not answered
  bool ended_ = false;
  int told_ = 0;  // times, of the thread that tells
};

}  // namespace sluice
