#include "engine/lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <set>

#include "compute/paths.h"
#include "engine/batch_writer.h"
#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;

constexpr int32_t kCells = 200;

RequestSpec spec_of(std::vector<Token> prompt) {
  RequestSpec spec;
  spec.prompt = std::move(prompt);
  return spec;
}

// Requests that come, go on, and end at random, in one lane; and a worker that knows what it is told.
class Story {
 public:
  explicit Story(uint64_t seed) : dice_(seed) {}

  void open() {
    if (running_.size() > kMostRequests) return;
    std::vector<Token> prompt;
    for (int32_t n = dice_.between(1, 12); n > 0; --n) prompt.push_back(dice_.below(3));
    Request& request = add(spec_of(std::move(prompt)));
    request.sequence = SequenceId(next_sequence_++);
    lane_.open(request);
  }

  // From any that is there: running or not, of which rows have gone out or not.
  void fork() {
    auto& requests = dice_.chance(0.7) ? running_ : ended_;
    if (requests.empty() || running_.size() > kMostRequests) return;
    const Request& other = pick(requests);
    const auto length = static_cast<size_t>(dice_.between(0, static_cast<int32_t>(lane_.can_share(other))));
    std::vector<Token> prompt(other.tokens.begin(), other.tokens.begin() + static_cast<ptrdiff_t>(length));
    for (int32_t n = dice_.between(1, 3); n > 0; --n) prompt.push_back(dice_.below(3));
    Request& request = add(spec_of(std::move(prompt)));
    request.sequence = SequenceId(next_sequence_++);
    lane_.fork(other, request, length);
    EXPECT_TRUE(std::ranges::equal(committed(request), committed(other).first(length)));
    forks += length > 0;
  }

  // Some requests have rows in the next batch, whatever enters next.
  void batch() {
    std::vector<Planned> plan;
    for (Request& request : running_) {
      if (!dice_.chance(0.4) || lane_.free_cells() < plan.size() + kMostRows) continue;
      if (request.prompt_rows_left(kTarget) > 0) {
        const auto rows =
            dice_.between(1, static_cast<int32_t>(std::min(kMostRows, request.prompt_rows_left(kTarget))));
        plan.insert(plan.end(), static_cast<size_t>(rows), Planned{.request = &request});
      } else {
        plan.push_back({.request = &request, .node = next_node(request)});
      }
    }
    if (plan.empty()) return;
    const Batch batch = write_batch(lane_, BatchId(next_batch_++), plan);
    for (const PathUpdate& update : batch.updates) paths_.apply(update);
    for (const Row& row : batch.rows) paths_.enter(row);
    for (size_t i = 0; i < plan.size(); ++i) expect_path(plan[i], batch.rows[i]);
  }

  void verdict() {
    for (Request& request : running_) {
      const NodeId root = request.speculation.tree.root().id;
      if (!request.speculation.target.entered(root) || !dice_.chance(0.5)) continue;
      lane_.commit(request, root);
      request.tokens.push_back(dice_.below(3));
      lane_.prune(request, request.speculation.tree.advance(request.tokens.back()).pruned);
    }
  }

  void forget() {
    if (!running_.empty()) lane_.forget_nodes(pick(running_));
  }

  void end() {
    if (running_.empty()) return;
    Request& request = pick(running_);
    std::vector<NodeId> nodes;
    for (const auto& node : request.speculation.tree.nodes()) nodes.push_back(node.id);
    lane_.prune(request, nodes);
    move(running_, request, ended_);
  }

  void go_on() {
    if (ended_.empty()) return;
    Request& previous = pick(ended_);
    const auto kept = static_cast<size_t>(dice_.between(0, static_cast<int32_t>(committed(previous).size())));
    std::vector<Token> prompt(previous.tokens.begin(), previous.tokens.begin() + static_cast<ptrdiff_t>(kept));
    prompt.push_back(dice_.below(3));
    Request& request = add(spec_of(std::move(prompt)));
    request.sequence = previous.sequence;
    lane_.continue_from(previous, request, kept);
    EXPECT_TRUE(committed(previous).empty());
    EXPECT_EQ(committed(request).size(), kept);
    drop(ended_, previous);
  }

  void close() {
    if (ended_.empty()) return;
    Request& request = pick(ended_);
    lane_.close(request);
    drop(ended_, request);
  }

  void close_all() {
    while (!running_.empty()) end();
    while (!ended_.empty()) close();
  }

  void happen() {
    using Event = void (Story::*)();
    (this->*dice_.pick<Event>({&Story::open, &Story::fork, &Story::fork, &Story::batch, &Story::batch, &Story::batch,
                               &Story::verdict, &Story::verdict, &Story::forget, &Story::end, &Story::go_on,
                               &Story::close}))();
  }

  // Cells that somebody holds.
  std::set<Cell> held() const {
    std::set<Cell> held;
    for (const auto* requests : {&running_, &ended_})
      for (const Request& request : *requests) {
        const auto nodes = request.speculation.target.cells();
        for (const auto& cells : {committed(request), std::span<const Cell>(nodes)})
          held.insert(cells.begin(), cells.end());
      }
    return held;
  }
  // How often cells are held.
  size_t holds() const {
    size_t holds = 0;
    for (const auto* requests : {&running_, &ended_})
      for (const Request& request : *requests)
        holds += committed(request).size() + request.speculation.target.cells().size();
    return holds;
  }
  const Lane& lane() const { return lane_; }
  int forks = 0;

 private:
  static constexpr size_t kMostRows = 5;      // of a request
  static constexpr size_t kMostRequests = 8;  // that run

  static std::span<const Cell> committed(const Request& request) { return request.speculation.target.committed(); }

  Request& add(RequestSpec spec) {
    Request& request = running_.emplace_back(RequestId(next_request_++), std::move(spec));
    request.promised.resize(1);
    return request;
  }
  Request& pick(std::list<Request>& requests) {
    return *std::next(requests.begin(), dice_.below(static_cast<int32_t>(requests.size())));
  }
  static auto place(std::list<Request>& requests, const Request& request) {
    return std::find_if(requests.begin(), requests.end(), [&](const Request& other) { return &other == &request; });
  }
  static void drop(std::list<Request>& requests, const Request& request) { requests.erase(place(requests, request)); }
  static void move(std::list<Request>& from, const Request& request, std::list<Request>& to) {
    to.splice(to.end(), from, place(from, request));
  }

  // The root, then children of nodes that have entered.
  NodeId next_node(Request& request) {
    TokenTree& tree = request.speculation.tree;
    if (!request.speculation.target.entered(tree.root().id)) return tree.root().id;
    std::vector<NodeId> entered;
    for (const auto& node : tree.nodes())
      if (request.speculation.target.entered(node.id)) entered.push_back(node.id);
    const NodeId parent = entered[static_cast<size_t>(dice_.below(static_cast<int32_t>(entered.size())))];
    Token token = dice_.below(3);
    while (tree.child(parent, token)) ++token;
    return tree.append(parent, token, 0.5f);
  }

  // The worker finds the row where the coordinator has it.
  void expect_path(const Planned& planned, const Row& row) const {
    std::vector<Cell> expected(committed(*planned.request).begin(), committed(*planned.request).end());
    expected.resize(std::min(expected.size(), static_cast<size_t>(row.position) + 1));
    const auto& tree = planned.request->speculation.tree;
    std::vector<Cell> branch;
    for (NodeId node = planned.node; node.valid(); node = tree.node(node).parent)
      branch.push_back(planned.request->speculation.target.find(node)->cell);
    expected.insert(expected.end(), branch.rbegin(), branch.rend());
    Path path;
    paths_.find(row, path);
    std::vector<Cell> found(path.committed.begin(), path.committed.end());
    found.insert(found.end(), path.branch.begin(), path.branch.end());
    EXPECT_EQ(found, expected);
  }

  Dice dice_;
  Lane lane_{kTarget, kCells, 1};
  Paths paths_{kCells};
  std::list<Request> running_, ended_;
  int32_t next_request_ = 0, next_sequence_ = 0, next_batch_ = 0;
};

TEST(Lane, ACellIsFreeIfAndOnlyIfNobodyHoldsItWhateverHappens) {
  int forks = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Story story(seed);
    for (int i = 0; i < 2000; ++i) {
      story.happen();
      const size_t held = story.held().size();
      ASSERT_EQ(story.lane().free_cells() + held, static_cast<size_t>(kCells)) << "seed " << seed << ", event " << i;
      ASSERT_EQ(story.lane().needed(story.holds()), held);
    }
    story.close_all();
    EXPECT_EQ(story.lane().free_cells(), static_cast<size_t>(kCells));
    forks += story.forks;
  }
  EXPECT_GT(forks, 500);
}

// One that runs, with so many committed tokens.
Request begun(Lane& lane, int32_t n_committed) {
  Request request(RequestId(0), spec_of(std::vector<Token>(static_cast<size_t>(n_committed) + 1, 7)));
  request.promised.resize(1);
  request.sequence = SequenceId(0);
  lane.open(request);
  const std::vector<Planned> plan(static_cast<size_t>(n_committed), Planned{.request = &request});
  write_batch(lane, BatchId(0), plan);
  return request;
}

Request forked(Lane& lane, const Request& from, size_t length, int32_t sequence) {
  Request request(RequestId(sequence), from.spec);
  request.promised.resize(1);
  request.sequence = SequenceId(sequence);
  lane.fork(from, request, length);
  return request;
}

TEST(Lane, ASharedCellIsFreeWhenTheLastOfItsSequencesLetsGo) {
  Lane lane(kTarget, kCells, 1);
  Request first = begun(lane, 10);
  Request second = forked(lane, first, 10, 1), third = forked(lane, second, 6, 2);
  EXPECT_EQ(lane.held_cells(), 10u);
  EXPECT_EQ(lane.shared_behind(first, 6), 4u);
  lane.close(first);
  EXPECT_EQ(lane.held_cells(), 10u);
  EXPECT_EQ(lane.shared_behind(second, 4), 2u);
  lane.close(second);
  EXPECT_EQ(lane.held_cells(), 6u);
  lane.close(third);
  EXPECT_EQ(lane.held_cells(), 0u);
}

TEST(Lane, KnowsHowManyNodesUnderWayMayStillComeTrue) {
  Lane lane(kTarget, kCells, 1);
  Request request = begun(lane, 3);
  TokenTree& tree = request.speculation.tree;
  const NodeId root = tree.root().id, near = tree.append(root, 1, 0.5f), far = tree.append(near, 2, 0.5f);
  const NodeId other = tree.append(root, 3, 0.2f);
  const std::vector<std::vector<NodeId>> batches = {{root, near}, {other, far}};
  for (int32_t batch = 1; const auto& nodes : batches) {
    std::vector<Planned> plan;
    for (const NodeId node : nodes) plan.push_back({.request = &request, .node = node});
    write_batch(lane, BatchId(batch), plan);
    lane.traffic().submitted({.batch = BatchId(batch++), .n_rows = 2, .alive = 2});
  }
  EXPECT_EQ(lane.room(false, 0.0).widest_alive, 2u);
  lane.prune(request, std::vector{other});
  EXPECT_EQ(lane.traffic().flight(BatchId(2))->alive, 1);
  EXPECT_EQ(lane.room(false, 0.0).widest_alive, 2u);
  lane.traffic().came_out({.batch = BatchId(1), .accepted = {{}}}, 1.0);
  EXPECT_EQ(lane.room(false, 0.0).widest_alive, 1u);
  lane.prune(request, std::vector{near, far});
  EXPECT_EQ(lane.room(false, 0.0).widest_alive, 0u);
  EXPECT_EQ(lane.take_dead().dead.size(), 2u);  // what is out needs no word
  EXPECT_EQ(lane.traffic().flight(BatchId(1)), nullptr);
}

TEST(Lane, SharesACellWithNoMoreSequencesThanWorkersAllow) {
  Lane lane(kTarget, kCells, 1);
  const Request first = begun(lane, 2);
  for (int32_t i = 1; i < kMostHolders; ++i) forked(lane, first, lane.can_share(first), i);
  EXPECT_EQ(lane.can_share(first), 0u);
  forked(lane, first, 0, kMostHolders);
  EXPECT_EQ(lane.held_cells(), 2u);
}

// A model that nobody asks is told nothing, so what waits for it must not grow with what comes and ends.
TEST(SequenceNews, WhatWaitsIsBoundedByWhatHasGoneOut) {
  SequenceNews news;
  for (const int32_t s : {0, 1}) {
    news.open(SequenceId(s), {}, 0);
    news.need(SequenceId(s));
  }
  news.take();
  for (int32_t i = 2; i < 1000; ++i) {  // each begins as the one before did, which ends
    news.fork(SequenceId(i), SequenceId(i == 2 ? 0 : i - 1), 5, {}, 0);
    news.truncate(SequenceId(i), 4, {}, 0);
    news.truncate(SequenceId(1), static_cast<size_t>(2000 - i), {}, 0);
    if (i > 2) news.close(SequenceId(i - 1));
  }
  const std::vector<PathUpdate> waiting = news.take();
  ASSERT_EQ(waiting.size(), 2u);
  EXPECT_EQ(std::get<Fork>(waiting[0]).from, SequenceId(0));
  EXPECT_EQ(std::get<Fork>(waiting[0]).length, 4);
  EXPECT_EQ(std::get<Truncate>(waiting[1]).length, 1001);
}

// What is forked must be there when the worker is told, whatever happens to it before that.
TEST(SequenceNews, AForkComesBeforeTheEndOfWhatItBeginsWith) {
  SequenceNews news;
  news.open(SequenceId(0), {}, 0);
  news.need(SequenceId(0));
  news.take();
  news.commit(SequenceId(0), Cell(3));
  EXPECT_EQ(news.known(SequenceId(0), 8), 7u) << "what waits may never be told";
  news.fork(SequenceId(1), SequenceId(0), 7, {}, 0);
  news.close(SequenceId(0));
  const std::vector<PathUpdate> waiting = news.take();
  ASSERT_EQ(waiting.size(), 2u);
  EXPECT_EQ(std::get<Fork>(waiting[0]).length, 7);
  EXPECT_EQ(std::get<Close>(waiting[1]).sequence, SequenceId(0));
}

}  // namespace
}  // namespace sluice
