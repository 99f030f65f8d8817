// The table of the methods' options, and the rule that a setting which nobody reads is refused.
#include "method/option_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "method/methods.h"

namespace sluice {
namespace {

using Settings = std::map<std::string, std::string>;

Status check(const Settings& given, const std::vector<std::string>& methods) {
  return check_settings_are_read(
      [&](const char* flag) -> std::optional<std::string> {
        const auto at = given.find(flag);
        return at == given.end() ? std::nullopt : std::optional(at->second);
      },
      methods);
}

TEST(OptionTable, NamesEachOptionOnceAndOnlyMethodsThatThereAre) {
  const auto names = method_names();
  std::set<std::string> keys;
  for (const MethodOption& option : method_option_table()) {
    EXPECT_TRUE(keys.insert(option.key()).second) << option.flag;
    for (const Readers& readers : option.readers)
      for (const std::string& method : readers.methods)
        EXPECT_NE(std::find(names.begin(), names.end(), method), names.end()) << option.flag << ' ' << method;
  }
}

TEST(OptionTable, GivesTheValuesAsFilesHaveThem) {
  nlohmann::json defaults, others;
  for (const MethodOption& option : method_option_table()) {
    defaults[option.key()] = option.in({});
    others[option.key()] = option.in({.fallback = Fallback::kNgram, .lookahead = kWaitForDoubt, .saguaro = 0.0});
  }
  EXPECT_EQ(defaults, nlohmann::json::parse(R"({"width": 16, "levels": 1, "group": 1, "children": 16, "depth": 6,
      "tree": [1, 1, 3, 1, 1, 1, 1, 1], "tree_nodes": 0, "draft_rows": 0, "draft_p_min": 0.0, "budget": 24,
      "fallback": "auto", "lookahead": 0, "replacement": false, "saguaro": 1.0, "saguaro_tokens": 0})"));
  EXPECT_EQ(others["fallback"], "ngram");
  EXPECT_EQ(others["lookahead"], "auto");
  EXPECT_EQ(others["saguaro"], "auto");
}

TEST(OptionTable, ValuesLieInTheirRanges) {
  EXPECT_TRUE(sluice::check(MethodOptions()));
  EXPECT_TRUE(sluice::check({.lookahead = kWaitForDoubt, .saguaro = 0.0}));
  const auto refusal = [](const MethodOptions& options) {
    const Status status = sluice::check(options);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(refusal({.width = 0}), "--width must be 1 to 256, not 0");
  EXPECT_EQ(refusal({.lookahead = -2}), "--lookahead must be 0 to 64, not -2");
  EXPECT_EQ(refusal({.saguaro = 2.0}), "--saguaro must be 0.001 to 1.0, not 2.0");
  EXPECT_EQ(refusal({.branching = {}}), "--tree must be 1 to 16, not []");
  EXPECT_EQ(refusal({.branching = {1, 17}}), "--tree must be 1 to 16, not [1,17]");
  EXPECT_NE(refusal({.branching = {16, 16}}).find("272 nodes"), std::string::npos);
}

TEST(OptionTable, ASettingThatNoMethodReadsIsRefusedWithThoseThatDo) {
  const Status refused = check({{"--budget", "8"}}, {"sd"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "--budget is read by ssd; here sd runs: leave it out");
  EXPECT_TRUE(check({{"--budget", "8"}}, {"sd", "ssd"}));
  EXPECT_FALSE(check({{"--children", "8"}}, {"ar"}));
}

TEST(OptionTable, SomeAreReadBesideOthersOnly) {
  EXPECT_TRUE(check({{"--tree", "2,2"}}, {"specinfer"}));
  EXPECT_FALSE(check({{"--tree", "2,2"}, {"--tree-nodes", "8"}}, {"specinfer"}));
  EXPECT_TRUE(check({{"--saguaro", "auto"}, {"--verify", "reject"}}, {"ssd"}));
  EXPECT_FALSE(check({{"--saguaro", "auto"}, {"--verify", "match"}}, {"ssd"}));
  const Status refused = check({{"--depth", "4"}}, {"surge"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "--depth is read by sd, eagle3, p-eagle and ssd, and by specinfer with --tree-nodes, and by surge with "
            "--head; here surge runs: leave it out");
}

TEST(OptionTable, WhatConcernsGuessesIsNoSettingOfPlainDecoding) {
  EXPECT_FALSE(check({{"--lossy", "relaxed"}}, {"ar"}));
  EXPECT_TRUE(check({{"--lossy", "relaxed"}}, {"surge"}));
  EXPECT_FALSE(check({{"--lossy-p", "0.5"}, {"--lossy", "relaxed"}}, {"surge"}));
  EXPECT_FALSE(check({{"--draft-vocab", "1000"}}, {"surge"})) << "without a draft model";
  EXPECT_TRUE(check({{"--draft-vocab", "1000"}, {"--draft", "small.gguf"}}, {"surge"}));
}

}  // namespace
}  // namespace sluice
