#include <gtest/gtest.h>

#include "method/level.h"
#include "method/methods.h"

namespace sluice {
namespace {

std::unique_ptr<Method> make(const std::string& name, int32_t width = 2) {
  auto method = make_method(name, {.width = width, .children = 4});
  EXPECT_TRUE(method);
  return std::move(method->policy);
}

// A pipeline played by hand: everything proposed enters at once, in a batch of its own.
class Scripted {
 public:
  explicit Scripted(std::unique_ptr<Method> method, int32_t last_position = 100) : method_(std::move(method)) {
    speculation.last_position = last_position;
  }

  // One pipeline step with a source that guesses tokens 1 and 2 after everything. What entered.
  std::vector<Token> step() {
    for (;;) {
      const Proposal proposal = method_->propose(speculation, {.first_stage = true, .sources = 1});
      for (const Ask& ask : proposal.expand) speculation.tree.set_candidates(ask.node, {{1, 0.6f}, {2, 0.3f}});
      if (!proposal.enter.empty() || proposal.expand.empty()) return enter(proposal.enter);
    }
  }

  TokenTree::Advance verdict(Token token) {
    speculation.target.leave(speculation.tree.root().id);
    auto advance = speculation.tree.advance(token);
    for (const NodeId node : advance.pruned) speculation.target.leave(node);
    return advance;
  }

  std::vector<Token> enter(const std::vector<NodeId>& nodes) {
    std::vector<Token> tokens;
    for (const NodeId node : nodes) {
      EXPECT_FALSE(speculation.target.entered(node)) << "entered twice";
      speculation.target.enter(node, {Cell(cells_++), BatchId(batches_), static_cast<uint16_t>(tokens.size())});
      tokens.push_back(speculation.tree.node(node).token);
    }
    ++batches_;
    return tokens;
  }

  Speculation speculation{.tree = TokenTree(9, 5), .target = {}, .last_position = 0};

 private:
  std::unique_ptr<Method> method_;
  int32_t cells_ = 0, batches_ = 0;
};

using Tokens = std::vector<Token>;

TEST(MakeMethod, KnowsItsMethodsAndNamesThemInItsError) {
  for (const auto& name : method_names()) EXPECT_EQ(make_method(name, {})->name, name);
  const auto unknown = make_method("magic", {});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().kind, ErrorKind::kInput);
  for (const auto& name : method_names()) EXPECT_NE(unknown.error().message.find(name), std::string::npos);
  EXPECT_NE(unknown.error().message.find("--method magic"), std::string::npos);
}

TEST(MethodTraits, FollowFromTheOptionsWhereTheseDecide) {
  const auto traits = [](const char* name, const MethodOptions& options) { return find_method(name)->traits(options); };
  EXPECT_FALSE(traits("ar", {}).speculates);
  EXPECT_EQ(traits("specpipe", {.width = 4, .children = 16}).draws, 4);
  EXPECT_EQ(traits("specinfer", {.branching = {1, 3}}).draws, 3);
  EXPECT_EQ(traits("pipespec", {}).draws, 0) << "the rule is not defined for it";
  EXPECT_TRUE(traits("eagle3", {}).takes_chains);
  EXPECT_EQ(traits("eagle3", {}).draws, 1);
  EXPECT_FALSE(traits("eagle3", {.tree_nodes = 8}).takes_chains);
  EXPECT_EQ(traits("eagle3", {.children = 16, .tree_nodes = 8}).draws, 8);
  EXPECT_FALSE(traits("ssd", {.fallback = Fallback::kDraft}).has_fallback);
  EXPECT_TRUE(traits("ssd", {}).has_fallback);
}

TEST(MethodTraits, EveryKindOfHeadHasItsMethod) {
  EXPECT_EQ(method_of(HeadKind::kSpd), "spd");
  EXPECT_EQ(method_of(HeadKind::kEagle3), "eagle3");
  EXPECT_EQ(method_of(HeadKind::kPEagle), "p-eagle");
  EXPECT_EQ(method_of(HeadKind::kExit), "ppsd");
  EXPECT_EQ(drafting_methods(), (std::vector<std::string>{"sd", "specinfer", "specpipe", "surge", "pipespec", "ssd"}));
}

TEST(Autoregressive, EntersTheRootAndWaits) {
  Scripted run(make("ar"));
  EXPECT_EQ(run.step(), Tokens{9});
  EXPECT_EQ(run.step(), Tokens{});
  EXPECT_FALSE(run.verdict(4).hit);
  EXPECT_EQ(run.step(), Tokens{4});
  EXPECT_EQ(run.step(), Tokens{});
}

TEST(Autoregressive, TakesOverATreeThatAnotherMethodGrew) {
  Scripted run(make("ar"));
  run.step();
  const NodeId guess = run.speculation.tree.append(run.speculation.tree.root().id, 4, 0.5f);
  run.speculation.tree.append(guess, 5, 0.5f);
  EXPECT_EQ(run.step(), Tokens{});  // guesses stay where they are
  EXPECT_TRUE(run.verdict(4).hit);
  EXPECT_EQ(run.step(), Tokens{4});
}

TEST(SpecPipe, OneLevelEntersAtEveryStep) {
  Scripted run(make("specpipe", 2));
  EXPECT_EQ(run.step(), Tokens{9});
  EXPECT_EQ(run.step(), (Tokens{1, 2}));  // .6, .3
  EXPECT_EQ(run.step(), (Tokens{1, 2}));  // .36 and .18 (first in order), both of 1 …
  EXPECT_EQ(run.speculation.tree.size(), 5u);
  EXPECT_EQ(run.speculation.tree.deepest(), 7);
  for (const auto& node : run.speculation.tree.nodes()) {
    if (node.position == 7) {
      EXPECT_EQ(run.speculation.tree.path(node.id).front(), 1);
    }
  }
}

TEST(SpecPipe, GoesOnFromWhatSurvivesAVerdict) {
  Scripted run(make("specpipe", 2));
  for (int i = 0; i < 3; ++i) run.step();
  EXPECT_TRUE(run.verdict(1).hit);
  EXPECT_EQ(run.speculation.tree.size(), 3u);  // the new root and both of its children
  EXPECT_EQ(run.step(), (Tokens{1, 2}));
  EXPECT_EQ(run.speculation.tree.deepest(), 8);
}

TEST(SpecPipe, AMissBeginsANewTreeWithItsRoot) {
  Scripted run(make("specpipe", 2));
  for (int i = 0; i < 3; ++i) run.step();
  EXPECT_FALSE(run.verdict(7).hit);
  EXPECT_EQ(run.step(), Tokens{7});
  EXPECT_EQ(run.step(), (Tokens{1, 2}));
}

TEST(SpecPipe, AFlushedRootThatWaitsEntersBeforeItsChildren) {
  Scripted run(make("specpipe", 4));
  run.step();
  run.step();
  EXPECT_TRUE(run.verdict(2).hit);  // all its siblings die, it has entered and has no children
  EXPECT_EQ(run.step(), (Tokens{1, 2}));
}

TEST(SpecPipe, GuessesNothingBeyondTheLastPosition) {
  Scripted run(make("specpipe", 2), /*last_position=*/7);
  EXPECT_EQ(run.step(), Tokens{9});
  EXPECT_EQ(run.step().size(), 2u);
  EXPECT_EQ(run.step().size(), 2u);
  EXPECT_EQ(run.step(), Tokens{});
  EXPECT_EQ(run.speculation.tree.deepest(), 7);
}

TEST(SpecPipe, EntersNothingWhileTheFirstStageIsBusyButAsksTheSource) {
  const auto method = make("specpipe");
  Speculation s{.tree = TokenTree(9, 5), .target = {}, .last_position = 100};
  s.target.enter(s.tree.root().id, {Cell(0), BatchId(0), 0});
  const Proposal proposal = method->propose(s, {.first_stage = false, .sources = 1});
  EXPECT_TRUE(proposal.enter.empty());
  EXPECT_EQ(proposal.expand, std::vector{Ask{s.tree.root().id}});
  s.tree.set_candidates(s.tree.root().id, {{1, 0.5f}});
  EXPECT_TRUE(method->propose(s, {.first_stage = false, .sources = 1}).enter.empty());
  EXPECT_EQ(s.tree.size(), 1u);
}

}  // namespace
}  // namespace sluice
