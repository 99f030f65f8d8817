// Starting the hosts of a file by an ssh that runs what it is told on this machine.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

// One that nobody listens at, for now.
std::string free_address() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("no port");
  ::close(fd);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Up : public testing::Test {
 protected:
  Up() {
    fs::remove_all(home_);
    fs::create_directories(home_);
    const std::string ssh = write_file("fake-ssh", "#!/bin/sh\necho \"$1 $2 $3\" >>" + (home_ / "logins").string() +
                                                       "\ncd " + home_.string() + " && exec sh -c \"$4\"\n");
    fs::permissions(ssh, fs::perms::owner_all);
    up_ = "[up]\nssh = [\"" + ssh + "\", \"-p\", \"2222\"]\nsluice = \"" + program_path() + "\"\n";
  }

  // Two hosts, the second of which is this machine.
  std::string hosts(const std::string& more = "") const {
    return write_file("up.toml", more + up_ + "[[host]]\nname = \"attic\"\naddress = \"" + attic_ +
                                     "\"\nlogin = \"me@attic\"\nthreads = 1\n[[host]]\naddress = \"" + here_ +
                                     "\"\nhere = true\noptions = [\"--no-fetch\", \"--threads\", \"1\"]\n");
  }

  const fs::path home_ = temp_path("up-home");
  const std::string attic_ = free_address(), here_ = free_address();
  std::string up_;
};

TEST_F(Up, HostsServeUntilItIsEnded) {
  const std::string file = hosts();
  Program up({"up", file});
  EXPECT_EQ(up.read_line(), "2 hosts are up: sluice run --hosts " + file + " uses them, Ctrl-C ends them");
  EXPECT_EQ(text_of(home_ / "logins"), "-p 2222 me@attic\n");
  const Program::Arguments run = {"run", "-m", small_model(), "-n", "8", "--hosts", file, "hello"};
  EXPECT_EQ(run_program(run).status, 0);
  up.signal(SIGINT);
  const Ran ran = up.wait();
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find("attic (" + attic_ + "): sluice stage: listening on " + attic_), std::string::npos) << ran.err;
  EXPECT_TRUE(fails(run_program(run), 1, {"nobody listens"})) << "it leaves none behind";
}

TEST_F(Up, HostsEndAlsoIfItIsKilled) {
  const std::string file = hosts();
  {
    Program up({"up", file});
    up.read_line();
    up.signal(SIGKILL);
    up.wait();
  }
  const Program::Arguments run = {"run", "-m", small_model(), "-n", "8", "--hosts", file, "hello"};
  for (int i = 0; i < 60 && run_program(run).status == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(run_program(run).status, 1);
}

TEST_F(Up, TheSecretIsCopiedIfItIsAskedFor) {
  const std::string secret = temp_path("up.secret");
  fs::remove(secret);
  ASSERT_EQ(run_program({"secret", secret}).status, 0);
  const std::string file = hosts("secret = \"up.secret\"\n");
  EXPECT_TRUE(
      fails(run_program({"up", file, "--check"}), 1, {"1 of 2 hosts", "attic", "no up.secret", "--copy-secret"}));
  const Ran checked = run_program({"up", file, "--check", "--copy-secret"});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_EQ(checked.out, "attic (" + attic_ + "): ready\n" + here_ + ": ready\n");
  EXPECT_EQ(text_of(home_ / "up.secret"), text_of(secret));
  EXPECT_EQ(fs::status(home_ / "up.secret").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  Program up({"up", file});
  EXPECT_EQ(up.read_line().substr(0, 15), "2 hosts are up:");
  EXPECT_EQ(run_program({"run", "-m", small_model(), "-n", "8", "--hosts", file, "hello"}).status, 0);
  up.signal(SIGTERM);
  EXPECT_EQ(up.wait().status, 0);
}

TEST_F(Up, WhatSshSaysBeforeIsNotTakenForAnAnswer) {
  const std::string talking = write_file("talking-ssh", "#!/bin/sh\necho 'no entry for strangers' >&2\nexec " +
                                                            (home_.parent_path() / "fake-ssh").string() + " \"$@\"\n");
  fs::permissions(talking, fs::perms::owner_all);
  up_.replace(up_.find("fake-ssh"), 8, "talking-ssh");
  const Ran checked = run_program({"up", hosts(), "--check"});
  EXPECT_EQ(checked.status, 0) << checked.err;
}

// Whatever ssh says of a host that it can't reach stands before.
std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);  // npos + 1 is the beginning
}

void expect_last_line(const Ran& ran, int status, const std::vector<std::string>& words) {
  EXPECT_EQ(ran.status, status) << ran.err;
  EXPECT_TRUE(last_line(ran.err).starts_with("sluice: ")) << ran.err;
  for (const std::string& word : words) EXPECT_NE(last_line(ran.err).find(word), std::string::npos) << ran.err;
}

TEST_F(Up, AHostThatDoesNotComeUpIsNamed) {
  const std::string refusing = write_file("refusing-ssh", "#!/bin/sh\necho 'Permission denied.' >&2\nexit 255\n");
  fs::permissions(refusing, fs::perms::owner_all);
  const auto file = [&](const std::string& ssh, const std::string& more = "") {
    return write_file("bad-up.toml", "[up]\nssh = [\"" + ssh + "\"]\n[[host]]\nname = \"attic\"\naddress = \"" +
                                         attic_ + "\"\n" + more);
  };
  expect_last_line(run_program({"up", file(refusing)}), 1, {"attic", "255", "Permission denied."});
  expect_last_line(run_program({"up", file(refusing), "--check"}), 1, {"1 of 1 hosts", "attic", "Permission denied."});
  expect_last_line(run_program({"up", file("/nowhere/ssh")}), 1, {"/nowhere/ssh", "installed"});
  const std::string silent = write_file("silent-ssh", "#!/bin/sh\nexec cat >/dev/null\n");
  fs::permissions(silent, fs::perms::owner_all);
  expect_last_line(run_program({"up", file(silent), "--patience", "1"}), 1, {"attic", "1 s", "--check"});
  expect_last_line(run_program({"up", file(refusing, "here = true\nsluice = \"/nowhere/sluice\"\n")}), 1,
                   {"attic", "/nowhere/sluice"});
}

TEST_F(Up, MistakesAreNamed) {
  EXPECT_TRUE(fails(run_program({"up"}), 2, {"hosts"}));
  EXPECT_TRUE(fails(run_program({"up", "/nowhere/hosts.toml"}), 2, {"/nowhere/hosts.toml"}));
  EXPECT_TRUE(fails(run_program({"up", hosts(), "--copy-secret"}), 2, {"--copy-secret", "secret ="}));
  EXPECT_TRUE(fails(run_program({"up", write_file("login.toml", "[[host]]\naddress = \"a\"\nlogin = \"-oProxy\"\n")}),
                    2, {"login.toml:1", "-oProxy"}));
}

}  // namespace
}  // namespace sluice::test
