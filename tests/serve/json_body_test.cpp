// What a body holds, in the order in which it came.
#include "serve/json_body.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace sluice::test {
namespace {

std::string read(const std::string& body) {
  const auto value = parse_body(body);
  return value ? value->dump() : value.error().message;
}

TEST(JsonBody, MembersStayInTheirOrder) {
  for (const char* body :
       {R"({"z":1,"a":{"y":[{"x":null,"b":true},[]],"c":"\u00e9\n"},"m":-1.5})", "{}", R"({"a":[[],{},[[{}]]],"":""})",
        R"({"a":18446744073709551615,"b":-9223372036854775808,"c":1e300,"d":0.1,"e":-0})"})
    EXPECT_EQ(read(body), nlohmann::ordered_json::parse(body).dump());
}

TEST(JsonBody, OfTwoOfOneNameTheSecondCounts) {
  EXPECT_EQ(read(R"({"a":1,"b":2,"a":{"c":3}})"), R"({"a":{"c":3},"b":2})");
  EXPECT_EQ(read(R"({"a":[1],"a":[2]})"), R"({"a":[2]})");
}

TEST(JsonBody, WhatIsWrongIsSaid) {
  EXPECT_EQ(read(R"({"a":})"), "the body is no JSON, see byte 6");
  EXPECT_EQ(read("{} {}"), "the body is no JSON, see byte 4");
  EXPECT_EQ(read(R"({"a":1e999})"), "the body holds a number that is out of range");
  EXPECT_EQ(read("[1]"), "the body must be a JSON object, not array");
  EXPECT_EQ(read("null"), "the body must be a JSON object, not null");
}

std::string object_of(int members) {
  std::string body = "{";
  for (int i = 0; i < members; ++i) body += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  return body + "}";
}

TEST(JsonBody, VeryManyMembersTakeNoTime) {
  EXPECT_TRUE(parse_body(object_of(4096)));
  EXPECT_NE(read(object_of(4097)).find("too many members"), std::string::npos);
  std::string all = "{\"a\":[" + object_of(4000);
  while (all.size() < (size_t{7} << 20)) all += "," + object_of(4000);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(parse_body(all + "]}"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace sluice::test
