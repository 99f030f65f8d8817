#include "transport/address.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(HostAddress, NamesAHostAndAPort) {
  EXPECT_EQ(HostAddress::parse("a:9").value(), (HostAddress{"a", 9}));
  EXPECT_EQ(HostAddress::parse("192.168.1.7").value(), (HostAddress{"192.168.1.7", HostAddress::kPort}));
  EXPECT_EQ(HostAddress::parse("[fe80::1]:8").value(), (HostAddress{"fe80::1", 8}));
  EXPECT_EQ(HostAddress::parse("[::1]").value().text(), "[::1]:7001");
  EXPECT_EQ(parse_hosts("a:1,b").value(), (std::vector<HostAddress>{{"a", 1}, {"b", HostAddress::kPort}}));
}

TEST(HostAddress, NamesARankOfAnMpiJob) {
  const HostAddress third = HostAddress::of_rank(3);
  EXPECT_EQ(third.text(), "rank 3");
  EXPECT_EQ(HostAddress::parse(third.text()).value(), third);
  EXPECT_FALSE(HostAddress::parse("a:9").value().is_rank());
  for (const char* text : {"rank ", "rank -1", "rank x", "rank 3:7001", "rank 99999999999"})
    EXPECT_FALSE(HostAddress::parse(text)) << text;
  EXPECT_FALSE(parse_hosts("a:1,rank 3")) << "they are not chosen, but started";
}

TEST(HostAddress, WhatIsNoneIsRefusedWithAnExample) {
  for (const char* text :
       {"",     ":",          ":7001", "a:",    "a:b", "a:70000", "a:-1",  "::1",  "fe80::1:7001", "[::1", "[::1]7001",
        "[]:1", "http://a:1", "a b:1", "a:1:2", "]:1", "[a]b:1",  "u@a:1", "7001", "7001:7001",    "-oX:1"}) {
    const auto address = HostAddress::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().kind, ErrorKind::kInput);
    EXPECT_NE(address.error().message.find("HOST:PORT"), std::string::npos) << address.error().message;
  }
  EXPECT_FALSE(parse_hosts("a:1,"));
  EXPECT_FALSE(parse_hosts(""));
}

}  // namespace
}  // namespace sluice
