// Files of hosts: what they say, and that each mistake in one is a line that names where it is and what would be right.
#include "session/hosts_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "support/tiny_model.h"

namespace sluice::test {
namespace {

TEST(HostsFile, SaysWhichHostsThereAreAndWhatTheyAreGiven) {
  const auto file = HostsFile::parse(R"(
secret = "keys/sluice.secret"
patience = 2.5
[[host]]
name = "desk"
address = "192.168.1.7:7002"
layers = 20
threads = 8
device = "ggml:cuda0"
memory = 24
[[host]]
relay = true
address = "attic"
role = "stage"
layers = 8
memory = 0.5
)",
                                     "/etc/sluice/hosts.toml");
  ASSERT_TRUE(file) << file.error().message;
  SessionOptions options;
  take_hosts(*file, options);
  EXPECT_EQ(options.secret, "/etc/sluice/keys/sluice.secret");
  EXPECT_EQ(options.patience, 2.5);
  ASSERT_EQ(options.hosts.size(), 2u);
  EXPECT_EQ(options.hosts[0].address.for_people(), "desk (192.168.1.7:7002)");
  EXPECT_EQ(options.hosts[0].layers, 20);
  EXPECT_EQ(options.hosts[0].threads, 8);
  EXPECT_EQ(options.hosts[0].device, "ggml:cuda0");
  EXPECT_EQ(options.hosts[1].device, "");
  EXPECT_EQ(options.hosts[0].memory, 24);
  EXPECT_EQ(options.hosts[1].address.for_people(), "attic:7001");
  EXPECT_EQ(options.hosts[1].memory, 0.5);
  EXPECT_TRUE(options.hosts[1].address.relay);
  EXPECT_FALSE(options.hosts[0].address.relay);
  EXPECT_TRUE(check(options));
}

TEST(HostsFile, LeavesWhatItDoesNotSayAsItIs) {
  const auto file = HostsFile::parse("host = [{address = \"a\"}, {address = \"b:1\"}]", "hosts.toml");
  ASSERT_TRUE(file) << file.error().message;
  SessionOptions options{.patience = 7};
  take_hosts(*file, options);
  EXPECT_EQ(options.patience, 7);
  EXPECT_EQ(options.secret, "");
  EXPECT_EQ(options.hosts[1].address.text(), "b:1");
  EXPECT_FALSE(options.hosts_say_layers());
}

TEST(HostsFile, AMistakeIsALineThatSaysWhereItIsAndWhatWouldBeRight) {
  const std::string a = "[[host]]\naddress = \"a\"\n";
  const std::vector<std::pair<std::string, std::vector<std::string>>> mistakes = {
      {"", {"hosts.toml: ", "no hosts", "[[host]]"}},
      {"secret = \n", {"hosts.toml:1: ", "TOML"}},
      {"[[host]]\naddress = \"a:b\"\n", {"hosts.toml:2: ", "'a:b'", "HOST:PORT"}},
      {"[[host]]\naddress = 7001\n", {"hosts.toml:2: ", "address must be a text"}},
      {"\n[[host]]\nname = \"x\"\n", {"hosts.toml:2: ", "address = "}},
      {"host = 3\n", {"hosts.toml:1: ", "[[host]]"}},
      {"host = [3]\n", {"hosts.toml:1: ", "[[host]]"}},
      {"[hosts]\n", {"hosts.toml:1: ", "'hosts'", "secret, patience, up, host"}},
      {a + "colour = \"red\"\n", {"hosts.toml:3: ", "'colour'", "address, name, role, layers, threads, memory"}},
      {a + "role = \"king\"\n", {"hosts.toml:3: ", "'king'", "stage, draft"}},
      {a + "threads = 0\n", {"hosts.toml:3: ", "threads", "1 to 256"}},
      {a + "threads = 2.5\n", {"hosts.toml:3: ", "threads", "whole"}},
      {a + "layers = \"all\"\n", {"hosts.toml:3: ", "layers", "whole"}},
      {a + "memory = -1\n", {"hosts.toml:3: ", "memory", "GiB"}},
      {a + "memory = nan\n", {"hosts.toml:3: ", "memory", "GiB"}},
      {a + "name = \"\"\n", {"hosts.toml:3: ", "name must be a text"}},
      {a + "name = \"two\\nlines\"\n", {"hosts.toml:3: ", "in one line"}},
      {a + "layers = 3\n[[host]]\naddress = \"b\"\n", {"hosts.toml:4: ", "layers", "all", "none"}},
      {a + "[[host]]\naddress = \"b\"\nname = \"attic\"\nlayers = 3\nrole = \"draft\"\n",
       {"hosts.toml:6: ", "layers", "attic (b:7001)", "draft", "leave it out"}},
      {a + "[[host]]\naddress = \"b\"\nrole = \"spare\"\nlayers = 3\n",
       {"hosts.toml:6: ", "layers", "b:7001", "spare", "leave it out"}},
      {a + "address = \"b\"\n", {"hosts.toml:3: "}},
      {"patience = 0\n" + a, {"hosts.toml:1: ", "patience", "0.5 to 3600"}},
      {"patience = \"long\"\n" + a, {"hosts.toml:1: ", "patience"}},
  };
  for (const auto& [text, words] : mistakes) {
    const auto file = HostsFile::parse(text, "hosts.toml");
    ASSERT_FALSE(file) << text;
    EXPECT_EQ(file.error().kind, ErrorKind::kInput);
    for (const std::string& word : words)
      EXPECT_NE(file.error().message.find(word), std::string::npos) << text << "\n" << file.error().message;
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos) << file.error().message;
  }
}

// Bytes of a good file that are changed, doubled or left out: a file again, or one line.
TEST(HostsFile, WhateverStandsInItDoesNoHarm) {
  const std::string good =
      "secret = \"s\"\npatience = 2.5\n[up]\nssh = [\"ssh\", \"-p\", \"22\"]\n[[host]]\nname = \"a\"\naddress = "
      "\"a:1\"\n"
      "role = \"stage\"\nlayers = 3\nthreads = 8\nmemory = 2e1\nhere = true\noptions = [\"x\"]\n";
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (unsigned n = 1 + random() % 6; n > 0 && !text.empty(); --n) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.insert(at, text.substr(random() % text.size(), random() % 20));
          break;
        default:
          text.erase(at, random() % 20);
      }
    }
    const auto file = HostsFile::parse(text, "hosts.toml");
    if (file) {
      EXPECT_FALSE(file->hosts.empty());
    } else {
      EXPECT_TRUE(file.error().message.starts_with("hosts.toml:")) << file.error().message;
      EXPECT_EQ(file.error().message.find('\n'), std::string::npos) << file.error().message;
    }
  }
}

TEST(HostsFile, ThatCannotBeReadIsNamed) {
  for (const std::string& path :
       {std::string("/nowhere/hosts.toml"), std::filesystem::temp_directory_path().string()}) {
    const auto file = hosts_of(path);
    ASSERT_FALSE(file);
    EXPECT_NE(file.error().message.find(path), std::string::npos) << file.error().message;
    EXPECT_NE(file.error().message.find("docs/hosts.md"), std::string::npos) << file.error().message;
  }
  const std::string large = temp_path("large.toml");
  std::ofstream(large) << std::string(2 << 20, '#');
  EXPECT_NE(hosts_of(large).error().message.find("1 MiB"), std::string::npos);
}

TEST(HostsFile, AListOfAddressesIsNone) {
  const auto hosts = hosts_of("a:7001,b");
  ASSERT_TRUE(hosts);
  EXPECT_EQ(hosts->hosts.size(), 2u);
  EXPECT_FALSE(hosts_of("a:b"));
}

}  // namespace
}  // namespace sluice::test
