#include "source/make_source.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using enum SourceKind;
using Names = std::vector<std::string>;

// The slots, as "ngram", "draft 0" or "ngram+draft 1".
Names slots(const std::vector<SourceKind>& asked, size_t n_drafts, bool hierarchy, bool head = false,
            bool wants_head = false, bool mtp = false) {
  const auto made =
      make_sources(asked, {.n_drafts = n_drafts, .head = head, .mtp = mtp, .corpus = nullptr}, hierarchy, wants_head);
  EXPECT_TRUE(made);
  Names all;
  for (const SourceSlot& slot : *made)
    all.push_back(slot.name() + (slot.draft ? " " + std::to_string(*slot.draft) : ""));
  return all;
}

std::string error_of(const std::vector<SourceKind>& asked, size_t n_drafts, bool head = false, bool mtp = false) {
  const auto made =
      make_sources(asked, {.n_drafts = n_drafts, .head = head, .mtp = mtp, .corpus = nullptr}, /*hierarchy=*/false);
  if (made) return "";
  EXPECT_EQ(made.error().kind, ErrorKind::kInput);
  return made.error().message;
}

TEST(MakeSources, ByDefaultItIsTheDraftModelsIfThereAreAny) {
  EXPECT_EQ(slots({}, 0, false), Names{"ngram"});
  EXPECT_EQ(slots({}, 0, true), Names{"ngram"});
  EXPECT_EQ(slots({}, 1, false), Names{"draft 0"});
  EXPECT_EQ(slots({}, 3, false), Names{"draft 2"}) << "the largest";
  EXPECT_EQ(slots({}, 3, true), (Names{"draft 0", "draft 1", "draft 2"}));
}

TEST(MakeSources, ThoseThatAreAskedForAreFusedOrMakeAHierarchy) {
  EXPECT_EQ(slots({kNgram}, 2, false), Names{"ngram"});
  EXPECT_EQ(slots({kNgram}, 2, true), Names{"ngram"});
  EXPECT_EQ(slots({kDraft}, 2, false), Names{"draft 1"});
  EXPECT_EQ(slots({kNgram, kDraft}, 2, false), Names{"ngram+draft 1"});
  EXPECT_EQ(slots({kDraft, kNgram}, 2, false), Names{"ngram+draft 1"});
  EXPECT_EQ(slots({kDraft, kNgram}, 2, true), (Names{"ngram", "draft 0", "draft 1"})) << "the cheapest comes first";
}

TEST(MakeSources, RefusesWhatItDoesNotHave) {
  EXPECT_EQ(error_of({kNgram, kNgram}, 0), "--source names ngram twice");
  EXPECT_EQ(error_of({kDraft, kDraft}, 1), "--source names draft twice");
  EXPECT_EQ(error_of({kDraft}, 0), "--source draft needs a model: add --draft FILE");
  EXPECT_EQ(error_of({kHead}, 1), "--source head needs a trained head: add --head FILE");
  EXPECT_NE(error_of({kMtp}, 0).find("it was not opened with the model"), std::string::npos);
  EXPECT_NE(error_of({kMtp}, 0, true).find("--head gives another"), std::string::npos);
  EXPECT_EQ(error_of({kHead, kMtp}, 0, true, true), "--source head,mtp names one head twice");
}

TEST(MakeSources, AHeadComesAfterTheDraftModels) {
  EXPECT_EQ(slots({}, 0, false, true), Names{"head 0"});
  EXPECT_EQ(slots({}, 2, false, true), Names{"draft 1"}) << "a draft model knows more";
  EXPECT_EQ(slots({}, 2, false, true, true), Names{"head 2"}) << "but not where the method is made for the head";
  EXPECT_EQ(slots({kNgram, kHead}, 1, false, true), Names{"ngram+head 1"});
  EXPECT_EQ(slots({kNgram}, 1, false, true, true), Names{"ngram"});
  EXPECT_EQ(slots({kNgram, kMtp}, 0, false, true, false, true), Names{"ngram+mtp 0"});
  EXPECT_EQ(slots({kMtp}, 1, true, true, false, true), Names{"mtp 1"});
}

}  // namespace
}  // namespace sluice
