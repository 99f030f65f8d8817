// What cannot be asked of a session, whoever asks.
#include "session/options.h"

#include <gtest/gtest.h>

#include "session/width_lock.h"

namespace sluice::test {
namespace {

void expect_refused(const SessionOptions& options, const std::string& word) {
  const Status status = check(options);
  ASSERT_FALSE(status) << word;
  EXPECT_EQ(status.error().kind, ErrorKind::kInput);
  EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().message;
}

TEST(SessionOptions, TheDefaultsMakeSense) { EXPECT_TRUE(check(SessionOptions())); }

TEST(SessionOptions, LazyComputationNeedsASimulatedClockAndNoHeads) {
  SessionOptions options{.compute = Compute::kLazy};
  expect_refused(options, "--executor virtual");
  options.executor = ExecutorKind::kVirtual;
  EXPECT_TRUE(check(options));
  options.heads = {"head.gguf"};
  expect_refused(options, "--head");
  expect_refused({.memo = "memo"}, "--compute lazy");
}

TEST(SessionOptions, ADeviceWhoseBitsMoveInSpiteOfTheLockIsNamed) {
  SessionOptions options{.devices = {"ggml:cuda0", "cpu", "ggml:cuda0", "ggml:cuda1"}, .width_lock = 8};
  EXPECT_EQ(lock_text(options, Exactness::kWidthLocked), "");
  const std::string line = lock_text(options, Exactness::kGreedyChecked);
  for (const char* word : {"--width-lock 8", "ggml:cuda0, ggml:cuda1 still", "1 to 512"})
    EXPECT_NE(line.find(word), line.npos) << line;
  EXPECT_EQ(line.find('\n'), line.npos);
  options.width_lock = 0;  // nothing was asked for
  EXPECT_EQ(lock_text(options, Exactness::kGreedyChecked), "");
}

TEST(SessionOptions, AStaticTreeFitsIntoABatch) {
  SessionOptions options;
  options.request.method_options.branching = {16, 16};
  expect_refused(options, "--tree");
  options.request.method_options.branching = {15, 16};
  EXPECT_TRUE(check(options));
}

TEST(SessionOptions, DraftModelsRunWhereThereIsAPlace) {
  for (const char* text : {"here", "0", "12", "attic:7002", "[fe80::1]:7001"}) {
    const auto place = DraftPlace::parse(text);
    ASSERT_TRUE(place) << text;
    EXPECT_EQ(place->text(), text);
  }
  EXPECT_EQ(DraftPlace::parse("attic")->text(), "attic:7001");
  for (const char* text : {"", "-1", "99999999999", "a:b", "rank 1"}) {
    const auto place = DraftPlace::parse(text);
    ASSERT_FALSE(place) << text;
    EXPECT_NE(place.error().message.find("here"), std::string::npos) << place.error().message;
  }
  SessionOptions options{.draft_on = DraftPlace{.kind = DraftPlace::Kind::kStage, .stage = 1}};
  expect_refused(options, "--profile");
  options.profile = "paper-8x";
  EXPECT_TRUE(check(options));
  options.draft_on = DraftPlace::parse("attic").value();
  expect_refused(options, "--hosts");
  options.hosts = {HostOptions{.address = HostAddress::parse("a:1").value()}};
  EXPECT_TRUE(check(options));
}

TEST(SessionOptions, SourcesAreThereToBeAsked) {
  SessionOptions options;
  options.request.sources = {SourceKind::kDraft};
  expect_refused(options, "--draft FILE");
  options.drafts = {"draft.gguf"};
  EXPECT_TRUE(check(options));
  options.ngram_corpus = "text";
  expect_refused(options, "ngram,draft");
  options.drafts.assign(9, "draft.gguf");
  expect_refused(options, "8 draft models");
}

TEST(SessionOptions, ARuleHasTwoNames) {
  EXPECT_STREQ(name_of(kLosslessRules, Rule::kReject), "reject");
  EXPECT_STREQ(name_of(kLossyRules, Rule::kReject), "none");
  EXPECT_STREQ(name_of(kLosslessRules, Rule::kTopP), "match");
  EXPECT_STREQ(name_of(kLossyRules, Rule::kTopP), "top-p");
}

}  // namespace
}  // namespace sluice::test
