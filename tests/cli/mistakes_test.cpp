// Mistakes of newcomers: what is said to each is what docs/troubleshooting.md says.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/illegal_instruction.h"
#include "cli/program.h"
#include "model/model_file.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The rows of the page's table: what was done wrong, and what is said to it.
std::map<std::string, std::string> rows_of_page() {
  std::ifstream page(SLUICE_SOURCE "/docs/troubleshooting.md");
  std::map<std::string, std::string> rows;
  for (std::string line; std::getline(page, line);) {
    const size_t bar = line.find(" | `");
    if (line.starts_with("| ") && bar != line.npos && line.ends_with("` |"))
      rows[line.substr(2, bar - 2)] = line.substr(bar + 4, line.size() - bar - 7);
  }
  return rows;
}

// Whether a line is that of the page, where … stands for anything.
bool is_said(const std::string& line, std::string page) {
  const std::string any = "…";
  size_t at = 0;
  for (bool first = true;; first = false) {
    const std::string part = page.substr(0, page.find(any));
    const bool last = part.size() == page.size();
    const size_t found = last && !first ? line.rfind(part) : line.find(part, at);
    if (found == line.npos || found < at || (first && found != 0)) return false;
    at = found + part.size();
    if (last) return at == line.size();
    page.erase(0, part.size() + any.size());
  }
}

// A folder with a model and what newcomers have beside it, to which relative paths lead.
class Mistakes : public testing::Test {
 protected:
  Mistakes() {
    fs::create_directories(folder_ / "my-model");
    fs::current_path(folder_);
    std::ofstream("my-model/config.json") << "{}";
    std::ofstream("wrong.toml") << "[[host]]\naddress = \"attic:seven\"\n";
    std::ofstream("my-model/model.safetensors") << "x";
    fs::copy_file(small_model(), "model.gguf");
    const std::string whole = read("model.gguf");
    std::ofstream("half.gguf", std::ios::binary) << whole.substr(0, whole.size() / 2);
    TinyModelSpec other;
    other.tokenizer = "llama";
    other.seed = 2;
    write_tiny_model(other, "other.gguf");
    tiny_head(*ModelFile::open("other.gguf"), {.kind = "spd"}).write("spd-other.gguf");
    ::setenv("LLAMA_CACHE", (folder_ / "cache").c_str(), 1);
    ::setenv("MODEL_ENDPOINT", "http://127.0.0.1:9", 1);  // nothing is there
  }
  ~Mistakes() override { fs::current_path(fs::temp_directory_path()); }

  static Ran run(const Program::Arguments& more) {
    Program::Arguments arguments = {"run", "hello", "-n", "4"};
    if (more.front() != "-m") arguments.insert(arguments.end(), {"-m", "model.gguf"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }

  static void put_program(const fs::path& path, const std::string& script) {
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }

  // tools/setup where apt-get and pip reach nobody; without ninja apt-get is asked first.
  Ran set_up(bool has_ninja) const {
    const fs::path folder = folder_ / (has_ninja ? "fresh" : "bare"), programs = folder / "programs";
    for (const char* made : {"tools", "programs", ".venv/bin"}) fs::create_directories(folder / made);
    fs::copy_file(SLUICE_SOURCE "/tools/setup", folder / "tools/setup");
    put_program(programs / "apt-get", "echo no network >&2; exit 1");
    put_program(folder / ".venv/bin/python", "echo no network >&2; exit 1");
    put_program(programs / "python3", "exit 0");
    put_program(programs / "sudo", "exec \"$@\"");
    std::vector<std::string> names = {"bash", "cat", "cut",   "dirname", "grep", "id",
                                      "sed",  "rm",  "mkdir", "xargs",   "head", "sha256sum"};
    names.insert(names.end(), {"g++", "cmake"});
    if (has_ninja) names.emplace_back("ninja");
    const std::string path = std::getenv("PATH");
    for (const std::string& name : names)
      for (size_t begin = 0, end = 0; end != path.npos && !fs::exists(programs / name); begin = end + 1) {
        end = path.find(':', begin);
        const fs::path found = fs::path(path.substr(begin, end - begin)) / name;
        if (fs::exists(found)) put_program(programs / name, "exec " + found.string() + " \"$@\"");
      }
    ::setenv("PATH", programs.c_str(), 1);
    ::unsetenv("CMAKE_PREFIX_PATH");
    Ran ran = run_program({(folder / "tools/setup").string()}, {.program = (programs / "bash").string()});
    ::setenv("PATH", path.c_str(), 1);
    return ran;
  }

  // What ends this process where the processor lacks an instruction.
  Ran illegal_instruction() const {
    const pid_t child = ::fork();
    if (child == 0) {
      static_cast<void>(!std::freopen("illegal", "w", stderr));
      report_illegal_instructions();
#if defined(__x86_64__)
      asm volatile("ud2");
#elif defined(__aarch64__)
      asm volatile("udf #0");
#endif
      ::_exit(0);
    }
    int state = 0;
    ::waitpid(child, &state, 0);
    return {.status = WIFEXITED(state) ? WEXITSTATUS(state) : -1, .out = {}, .err = read("illegal")};
  }

  static Ran with_instruction_set(const char* name) {
    ::setenv("SLUICE_ISA", name, 1);
    Ran ran = run({"--method", "ar"});
    ::unsetenv("SLUICE_ISA");
    return ran;
  }

  // A sluice stage at a port that the system chose.
  struct StageProcess {
    explicit StageProcess(Program::Arguments more = {}) : program(with(std::move(more))) {
      const std::string said = program.read_line();
      const size_t begin = said.find("127."), end = said.find(',');
      address = said.substr(begin, end - begin);
    }
    static Program::Arguments with(Program::Arguments more) {
      more.insert(more.begin(), {"stage", "--listen", "127.0.0.1:0"});
      return more;
    }
    Program program;
    std::string address;
  };

  static Ran listen_twice() {
    const StageProcess first;
    return run_program({"stage", "--listen", first.address});
  }
  static Ran use_a_host_that_ended() {
    std::string address;
    {
      const StageProcess ended;
      address = ended.address;
    }
    return run({"--hosts", address});
  }
  static Ran use_a_host(const Program::Arguments& more) {
    const StageProcess host(more);
    return run({"--hosts", host.address});
  }
  // Each process has a directory of its own there.
  static Ran use_a_host_without_the_model() {
    const StageProcess host({"--no-fetch"});
    fs::create_directories("elsewhere");
    fs::copy_file("model.gguf", "elsewhere/unknown.gguf", fs::copy_options::skip_existing);
    fs::current_path("elsewhere");
    Ran ran = run({"-m", "/proc/self/cwd/unknown.gguf", "--hosts", host.address});
    fs::current_path("..");
    return ran;
  }

  // What listens there, and says nothing.
  static Ran use_a_silent_host() {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd, 4) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no port");
    Ran ran = run({"--patience", "1", "--hosts", "127.0.0.1:" + std::to_string(ntohs(address.sin_port))});
    ::close(fd);
    return ran;
  }

  const fs::path folder_ = temp_path("newcomer");
};

TEST_F(Mistakes, AreAnsweredAsThePageSays) {
  const auto of = [](const Program::Arguments& arguments) { return [arguments] { return run(arguments); }; };
  const std::map<std::string, std::function<Ran()>> all = {
      {"a repository's name as a path: `-m ada/model-GGUF`", of({"-m", "ada/model-GGUF"})},
      {"an address: `-m https://huggingface.co/ada/model-GGUF`", of({"-m", "https://huggingface.co/ada/model-GGUF"})},
      {"a folder of safetensors: `-m my-model`", of({"-m", "my-model"})},
      {"a draft model that is not there: `--draft small.gguf`", of({"--draft", "small.gguf"})},
      {"a draft model of another family: `--draft other.gguf`", of({"--draft", "other.gguf"})},
      {"a head that is not there: `--head spd.gguf`", of({"--head", "spd.gguf"})},
      {"a head of another model: `--head spd-other.gguf`", of({"--head", "spd-other.gguf"})},
      {"a head in place of its model: `-m spd-other.gguf`", of({"-m", "spd-other.gguf"})},
      {"more stages than layers: `--stages 8`", of({"--stages", "8"})},
      {"a disk that is full: `--trace`", of({"--trace", "/dev/full"})},
      {"a download that stopped: `-m half.gguf`", of({"-m", "half.gguf"})},
      {"a name, but no network: `-m hf:ada/model-GGUF`", of({"-m", "hf:ada/model-GGUF"})},
      {"no network at the set-up, for `apt-get`", [&] { return set_up(false); }},
      {"the same, for `pip`", [&] { return set_up(true); }},
      {"a port in use: `sluice stage --listen 127.0.0.1:…`", listen_twice},
      {"a host where nothing runs: `--hosts 127.0.0.1:…`", use_a_host_that_ended},
      {"a host that says nothing: `--hosts 127.0.0.1:…`", use_a_silent_host},
      {"a host with too little memory: `sluice stage --memory 0.0001`",
       [] {
         return use_a_host({"--memory", "0.0001"});
       }},
      {"a host that lacks the model: `sluice stage --no-fetch`", use_a_host_without_the_model},
      {"a file of hosts that is not there: `--hosts hosts.toml`", of({"--hosts", "hosts.toml"})},
      {"a mistake in it: `--hosts wrong.toml`", of({"--hosts", "wrong.toml"})},
      {"a profile that is not there: `--profile slow.json`", of({"--profile", "slow.json"})},
      {"a build from another computer, on an older processor", [&] { return illegal_instruction(); }},
      {"an instruction set that is not there: `SLUICE_ISA=avx1024`", [&] { return with_instruction_set("avx1024"); }},
  };
  const auto rows = rows_of_page();
  for (const auto& [mistake, line] : rows) EXPECT_TRUE(all.contains(mistake)) << "nobody makes it: " << mistake;
  for (const auto& [mistake, make] : all) {
    ASSERT_TRUE(rows.contains(mistake)) << "the page does not know it: " << mistake;
    const Ran ran = make();
    EXPECT_GT(ran.status, 0) << mistake;
    std::string said = ran.err;
    ASSERT_TRUE(said.ends_with("\n")) << mistake << ": " << ran.err;
    said.pop_back();
    for (const std::string step : {"setup: installing ", "setup: fetching "})  // what the set-up is doing
      if (said.starts_with(step)) said.erase(0, said.find('\n') + 1);
    EXPECT_EQ(said.find('\n'), said.npos) << "more than a line: " << said;
    EXPECT_TRUE(is_said(said, rows.at(mistake))) << mistake << "\n  says " << said << "\n  not  " << rows.at(mistake);
  }
}

}  // namespace
}  // namespace sluice::test
