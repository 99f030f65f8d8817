#include "wire/fields.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "wire/message.h"

namespace sluice {
namespace {

TEST(Fields, ComeInTheOrderOfDeclarationWhateverTheirTypes) {
  struct Inner {
    int32_t a = 1;
    double b = 2;
  };
  struct Mixed {
    std::vector<int> list;
    std::string text = "t";
    Inner inner;
    BatchId id = BatchId(7);
    bool flag = true;
  } mixed;
  std::string seen;
  for_each_field(mixed, [&seen](auto& field) {
    using T = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<T, std::vector<int>>) seen += 'v';
    if constexpr (std::is_same_v<T, std::string>) seen += field;
    if constexpr (std::is_same_v<T, Inner>) seen += 'i', field.a = 5;
    if constexpr (std::is_same_v<T, BatchId>) seen += std::to_string(field.value);
    if constexpr (std::is_same_v<T, bool>) seen += field ? '1' : '0';
  });
  EXPECT_EQ(seen, "vti71");
  EXPECT_EQ(mixed.inner.a, 5) << "they are the members themselves";
}

TEST(Fields, OfMessagesAreAllCounted) {
  EXPECT_EQ(fields::count<Close>(), 1u);
  EXPECT_EQ(fields::count<Row>(), 8u);
  EXPECT_EQ(fields::count<Batch>(), 9u);
  EXPECT_EQ(fields::count<Draws>(), 5u);
  EXPECT_EQ(fields::count<SamplingParams>(), 15u);
  EXPECT_EQ(fields::count<WorkerFailed>(), 1u);
}

}  // namespace
}  // namespace sluice
