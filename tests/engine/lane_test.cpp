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
    std::vector<Token> prompt;
    for (int32_t n = dice_.between(1, 12); n > 0; --n) prompt.push_back(dice_.below(3));
    Request& request = add(spec_of(std::move(prompt)));
    request.sequence = SequenceId(next_sequence_++);
    lane_.open(request);
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
    const auto event = dice_.pick<Event>({&Story::open, &Story::batch, &Story::batch, &Story::batch, &Story::verdict,
                                          &Story::verdict, &Story::forget, &Story::end, &Story::go_on, &Story::close});
    if (event == &Story::open && running_.size() > 8) return;
    (this->*event)();
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
  size_t free_cells() const { return lane_.free_cells(); }

 private:
  static constexpr size_t kMostRows = 5;  // of a request

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
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Story story(seed);
    for (int i = 0; i < 2000; ++i) {
      story.happen();
      ASSERT_EQ(story.free_cells() + story.held().size(), static_cast<size_t>(kCells)) << "seed " << seed;
    }
    story.close_all();
    EXPECT_EQ(story.free_cells(), static_cast<size_t>(kCells));
  }
}

}  // namespace
}  // namespace sluice
