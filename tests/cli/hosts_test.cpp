// Stages in other processes on this machine: the same tokens as in one process, and what is said when something is not
// as it should be.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/gate.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "model/model_file.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Arguments = Program::Arguments;

// A process that holds stages, at a port that the system chose.
class StageProcess {
 public:
  explicit StageProcess(const Arguments& more = {}) : program_(arguments(more)) {
    const std::string line = program_.read_line();
    const std::string before = "listening on ";
    const size_t begin = line.find(before);
    if (begin == line.npos) throw std::runtime_error("sluice stage said: " + line);
    address = line.substr(begin + before.size(), line.find(',') - begin - before.size());
  }
  Program& program() { return program_; }

  std::string address;

 private:
  static Arguments arguments(const Arguments& more) {
    Arguments all = {"stage", "--threads", "1"};
    if (std::ranges::find(more, "--listen") == more.end()) all.insert(all.end(), {"--listen", "127.0.0.1:0"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Program program_;
};

std::string addresses(std::initializer_list<const StageProcess*> stages) {
  std::string all;
  for (const StageProcess* stage : stages) all += (all.empty() ? "" : ",") + stage->address;
  return all;
}

Ran run(const Arguments& more) {
  Arguments arguments = {"run", "-m", small_model(),  "--threads", "1",
                         "-n",  "40", "--ignore-eos", "--json",    "one two one two"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

json answer(const Arguments& more) {
  const Ran ran = run(more);
  EXPECT_EQ(ran.status, 0) << ran.err;
  return json::parse(ran.out, nullptr, false);
}

const std::string& head_of_small_model() {
  static const std::string path =
      tiny_head(*ModelFile::open(small_model()), {.kind = "eagle3"}).write(temp_path("hosts-eagle3.gguf"));
  return path;
}

const std::string& draft_of_small_model() {
  static const std::string path = [] {
    TinyModelSpec spec;
    spec.n_layers = 2;
    return write_tiny_model(spec, temp_path("hosts-draft.gguf"));
  }();
  return path;
}

const std::vector<Arguments>& methods() {
  static const std::vector<Arguments> all = {
      {"--method", "ar"},
      {"--method", "specpipe", "--source", "ngram"},
      {"--method", "surge", "--source", "ngram"},
      {"--method", "sd", "--draft", draft_of_small_model()},
      {"--method", "eagle3", "--head", head_of_small_model()},
      {"--method", "surge", "--draft", draft_of_small_model(), "--temp", "0.8", "--seed", "3"},
  };
  return all;
}

// The hosts of a file, which is written to the tests' folder.
Arguments of_file(const std::string& name, const std::string& text) { return {"--hosts", write_file(name, text)}; }

std::string host_table(const StageProcess& stage, const std::string& more = "") {
  return "[[host]]\naddress = \"" + stage.address + "\"\n" + more;
}

void expect_same_tokens(const std::string& hosts, const Arguments& more = {}) {
  for (const Arguments& method : methods()) {
    Arguments there = method;
    there.insert(there.end(), {"--hosts", hosts});
    there.insert(there.end(), more.begin(), more.end());
    const json here = answer(method), elsewhere = answer(there);
    EXPECT_EQ(elsewhere["tokens"], here["tokens"]) << method[1] << " at " << hosts;
    EXPECT_EQ(elsewhere["method"], here["method"]);
    EXPECT_EQ(elsewhere["executor"], "hosts");
    EXPECT_EQ(elsewhere["exactness"], here["exactness"]);
  }
}

TEST(Hosts, AStageMayComputeOnADeviceOfItsHost) {
  const StageProcess ours, theirs({"--device", "ggml:cpu"});
  const Arguments hosts = {"--hosts", addresses({&ours, &theirs})};
  const auto there = [&](Arguments method) {
    method.insert(method.end(), hosts.begin(), hosts.end());
    return answer(method);
  };
  const json plain = there({"--method", "ar"}), guessed = there({"--method", "specpipe", "--source", "ngram"});
  EXPECT_EQ(plain["exactness"], "width-locked");
  EXPECT_EQ(guessed["tokens"], plain["tokens"]);
  EXPECT_EQ(answer({"--method", "ar", "--device", "cpu,ggml:cpu"})["tokens"], plain["tokens"]);
  Arguments asked = hosts;  // by the coordinator; a host's own device goes before
  asked.insert(asked.end(), {"--device", "ggml:none"});
  EXPECT_TRUE(fails(run(asked), 1, {"'ggml:none'", "cpu, ggml:cpu"}));
}

TEST(Hosts, OneTwoAndThreeGiveTheSameTokensAsOneProcess) {
  const StageProcess a, b, c;
  expect_same_tokens(addresses({&a}));
  expect_same_tokens(addresses({&a, &b}));
  expect_same_tokens(addresses({&a, &b, &c}));
  EXPECT_EQ(answer({"--hosts", addresses({&a, &b, &a, &c})})["stages"], 4) << "a host may hold several";
}

TEST(Hosts, PassOnStatesAsF16IfAskedTo) {
  const StageProcess a, b;
  for (const Arguments& method : methods()) {
    Arguments f16 = method;
    f16.insert(f16.end(), {"--activations", "f16"});
    Arguments here = f16, there = f16, simulated = f16;
    here.insert(here.end(), {"--stages", "2"});
    there.insert(there.end(), {"--hosts", addresses({&a, &b})});
    simulated.insert(simulated.end(), {"--stages", "2", "--executor", "virtual"});
    const json expected = answer(here), found = answer(there);
    EXPECT_EQ(found["tokens"], expected["tokens"]) << method[1];
    EXPECT_EQ(answer(simulated)["tokens"], expected["tokens"]) << method[1];
    EXPECT_EQ(found["exactness"], "inexact: activations f16");
    EXPECT_EQ(found["activations"], "f16");
    EXPECT_EQ(found["states_out_of_range"], 0);
  }
  EXPECT_FALSE(answer({"--method", "ar"}).contains("states_out_of_range"));
  EXPECT_TRUE(fails(run({"--activations", "f16"}), 2, {"--activations f16", "one stage", "--hosts"}));
  EXPECT_TRUE(fails(run({"--activations", "f16", "--hosts", a.address}), 2, {"--activations f16", "one stage"}));
  const Ran said =
      run_program({"run", "-m", small_model(), "--stages", "2", "--activations", "f16", "-n", "8", "hello"});
  EXPECT_NE(said.err.find("inexact: activations f16"), std::string::npos) << said.err;
}

TEST(Hosts, WithASecretTheySpeakTls) {
  const std::string secret = temp_path("hosts.secret"), other = temp_path("other.secret");
  ASSERT_EQ(run_program({"secret", secret}).status, 0);
  ASSERT_EQ(run_program({"secret", other}).status, 0);
  const StageProcess a({"--secret", secret}), b({"--secret", secret});
  expect_same_tokens(addresses({&a, &b}), {"--secret", secret});
  EXPECT_TRUE(fails(run({"--hosts", a.address, "--secret", other}), 1, {a.address, "--secret"}));
  EXPECT_TRUE(fails(run({"--hosts", a.address}), 1, {a.address, "--secret"}));
  EXPECT_TRUE(fails(run({"--hosts", a.address, "--secret", "nowhere"}), 2, {"nowhere", "sluice secret"}));
}

TEST(Hosts, ThatOnlyTheCoordinatorReachesPassOnStatesByWayOfIt) {
  const std::string secret = temp_path("relay.secret");
  fs::remove(secret);
  ASSERT_EQ(run_program({"secret", secret}).status, 0);
  const StageProcess a({"--secret", secret}), b({"--secret", secret}), c({"--secret", secret});
  expect_same_tokens(addresses({&a, &b}), {"--relay", "--secret", secret});
  expect_same_tokens(addresses({&a, &b, &c}), {"--relay", "--secret", secret});
  const auto relay = [&](const std::string& hosts, const Arguments& more = {}) {
    Arguments all = {"--method", "ar", "--hosts", hosts, "--secret", secret};
    all.insert(all.end(), more.begin(), more.end());
    return answer(all)["relay"];
  };
  const json both = relay(addresses({&a, &b, &c}), {"--relay"});
  EXPECT_EQ(both["edges"], 2);
  EXPECT_GT(both["bytes_per_token"], 2 * 64 * sizeof(float)) << "a row of two edges, at least";
  EXPECT_GT(both["seconds_per_step"], 0.0);
  EXPECT_EQ(relay(addresses({&a, &a}), {"--relay"}), json()) << "a host reaches itself";
  EXPECT_EQ(relay(addresses({&a, &b})), json());
  const json halves = relay(addresses({&a, &b, &c}), {"--relay", "--activations", "f16"});
  EXPECT_LT(halves["bytes_per_token"], both["bytes_per_token"]);
}

TEST(Hosts, AFileSaysWhichOfThemOnlyTheCoordinatorReaches) {
  const StageProcess a, b, c;
  const std::string relay = "relay = true\n";
  for (const auto& [text, edges] : {std::pair(host_table(a) + host_table(b, relay) + host_table(c), 2),
                                    {host_table(a) + host_table(b) + host_table(c, relay), 1}}) {
    Arguments there = of_file("relayed.toml", text);
    there.insert(there.end(), {"--method", "ar"});
    const json said = answer(there);
    EXPECT_EQ(said["relay"]["edges"], edges);
    EXPECT_EQ(said["tokens"], answer({"--method", "ar"})["tokens"]);
  }
  EXPECT_TRUE(fails(run({"--relay"}), 2, {"--relay", "--hosts"}));
}

TEST(Hosts, WhereOneCantReachTheNextItsStatesGoByWayOfTheCoordinator) {
  const StageProcess a, b;
  for (const Arguments& method : methods()) {
    const Gate gate(b.address, 1);  // first the coordinator comes, then the stage before
    Arguments there = method;
    there.insert(there.end(), {"--hosts", a.address + "," + gate.address});
    const Ran ran = run(there);
    EXPECT_EQ(ran.status, 0) << ran.err;
    const json found = json::parse(ran.out, nullptr, false);
    EXPECT_EQ(found["tokens"], answer(method)["tokens"]) << method[1];
    EXPECT_EQ(found["relay"]["edges"], 1);
    EXPECT_TRUE(
        ran.err.starts_with("sluice: host " + a.address + " can't reach the next stage (host " + gate.address + ": "))
        << ran.err;
    EXPECT_NE(ran.err.find("by way of this process\n"), std::string::npos) << ran.err;
    EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
  }
}

// By way of the coordinator 20 ms and 20 ms more, where the hosts are 1 ms apart.
TEST(Hosts, ByWayOfTheCoordinatorTwoLinksOfAProfileAreTaken) {
  const StageProcess a, b;
  const std::string profile = write_file("detour.json", R"({"name": "detour", "stage": {"points": [[1, 0.0001]]},
    "draft": {"points": [[1, 0.001]]}, "edges": [{"latency": 0}, {"latency": 0.001}, {"latency": 0}],
    "direct": [{"latency": 0.02}, {"latency": 0.02}]})");
  const json relayed = answer({"--method", "ar", "--profile", profile, "--hosts", addresses({&a, &b}), "--relay"});
  EXPECT_GE(relayed["seconds"]["decode"].get<double>(), 39 * 0.04);
  EXPECT_GE(relayed["relay"]["seconds_per_step"].get<double>(), 0.02) << "half of there and back again";
}

TEST(Hosts, OfOtherInstructionSetsHaveTheSameBits) {
  ::setenv("SLUICE_ISA", "scalar", 1);
  const StageProcess scalar;
  ::unsetenv("SLUICE_ISA");
  const StageProcess best;
  expect_same_tokens(addresses({&scalar, &best}));
  expect_same_tokens(addresses({&best, &scalar}));
}

// Each process has a working directory of its own, and so a /proc/self/cwd/mine.gguf.
TEST(Hosts, AStageFindsItsModelByItsContents) {
  const fs::path folder = temp_path("models-of-a-host"), mine = temp_path("mine");
  fs::create_directories(folder);
  fs::create_directories(mine);
  fs::copy_file(small_model(), folder / "another-name.gguf");
  write_file("models-of-a-host/broken.gguf", "GGUF");
  fs::copy_file(small_model(), mine / "small.gguf");
  TinyModelSpec spec;
  spec.seed = 77;
  write_tiny_model(spec, mine / "unknown.gguf");
  const StageProcess with({"--models", folder, "--no-fetch"}), without({"--no-fetch"}),
      fetching({"--cache", temp_path("fetching")});
  fs::current_path(mine);
  const auto run_here = [&](const std::string& file, const std::string& hosts) {
    const std::string path = "/proc/self/cwd/" + file;
    return run_program({"run", "-m", path, "--threads", "1", "-n", "4", "--hosts", hosts, "hello"});
  };
  const Ran found = run_here("small.gguf", with.address);
  EXPECT_EQ(found.status, 0) << found.err;
  EXPECT_TRUE(fails(run_here("small.gguf", without.address), 1,
                    {without.address, "small.gguf", "SHA-256", "copy", "--models", "--no-fetch"}));
  EXPECT_TRUE(fails(run_here("unknown.gguf", with.address), 1, {with.address, "unknown.gguf", folder.string()}));
  const Ran fetched = run_here("small.gguf", fetching.address + "," + fetching.address);
  EXPECT_EQ(fetched.status, 0) << fetched.err;
  EXPECT_EQ(fetched.out, found.out);
  EXPECT_TRUE(fs::exists(temp_path("fetching") + "/weights"));
  fs::current_path(fs::temp_directory_path());
}

TEST(Hosts, TooLittleMemoryIsSaidBeforeAnythingIsComputed) {
  const StageProcess small({"--memory", "0.0001"});
  EXPECT_TRUE(fails(run({"--hosts", small.address}), 1, {small.address, "memory", "--context", "--memory"}));
}

TEST(Hosts, HandBackWhatTheyHeld) {
  const StageProcess tight({"--memory", "0.005"});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run({"--hosts", tight.address, "-c", "256"}).status, 0);
}

TEST(Hosts, ThatAreNotThereAreNamed) {
  std::string gone;
  {
    StageProcess stage;
    gone = stage.address;
    stage.program().signal(SIGTERM);
    const Ran ran = stage.program().wait();
    EXPECT_EQ(ran.status, 0) << ran.err;
  }
  EXPECT_TRUE(fails(run({"--hosts", gone}), 1, {gone, "sluice stage"}));
  const StageProcess here;
  EXPECT_TRUE(fails(run({"--hosts", here.address + "," + gone}), 1, {gone, "sluice stage"}));
  EXPECT_TRUE(fails(run({"--hosts", "192.0.2.1:7001"}), 1, {"192.0.2.1:7001", "--secret"}));
}

TEST(Hosts, APortInUseIsNamed) {
  const StageProcess first;
  EXPECT_TRUE(fails(run_program({"stage", "--listen", first.address}), 1, {first.address, "in use"}));
  EXPECT_TRUE(fails(run_program({"stage", "--listen", "0.0.0.0:0"}), 2, {"0.0.0.0", "--secret"}));
  EXPECT_TRUE(fails(run_program({"stage", "--listen", "nonsense:port"}), 2, {"nonsense:port"}));
  EXPECT_TRUE(fails(run_program({"stage", "--models", "/nowhere"}), 2, {"--models /nowhere"}));
}

// Passes of 20 ms: 40 tokens over two stages take 1.6 s at least.
TEST(Hosts, KeepThePaceOfAProfile) {
  const StageProcess a, b;
  const std::string profile = write_file(
      "slow.json", R"({"name": "slow", "stage": {"points": [[1, 0.02], [256, 0.02]]}, "link": {"latency": 0}})");
  const json paced = answer({"--method", "ar", "--profile", profile, "--hosts", addresses({&a, &b})});
  EXPECT_GE(paced["seconds"]["decode"].get<double>(), 39 * 2 * 0.02);
  EXPECT_EQ(paced["tokens"], answer({"--method", "ar"})["tokens"]);
}

// Round trips of 15 + 10 + 25 ms: 39 tokens after the first take 1.95 s at least.
TEST(Hosts, MessagesTakeAsLongAsByTheLinksOfAProfile) {
  const StageProcess a, b;
  const std::string profile = write_file("far.json", R"({"name": "far", "stage": {"points": [[1, 0.0001]]},
    "draft": {"points": [[1, 0.001]]}, "seed": 4, "edges": [{"latency": 0.015}, {"latency": 0.01}, {"latency": 0.025}]})");
  const json plain = answer({"--method", "ar", "--profile", profile, "--hosts", addresses({&a, &b})});
  EXPECT_GE(plain["seconds"]["decode"].get<double>(), 39 * 0.05);
  EXPECT_EQ(plain["links_emulated"], "15, 10, 25 ms");
  expect_same_tokens(addresses({&a, &b}), {"--profile", profile});
  EXPECT_TRUE(answer({"--method", "ar", "--hosts", addresses({&a, &b})})["links_emulated"].is_null());
}

TEST(Hosts, WithStoredAnswersTheyOnlyTakeTheirTime) {
  const StageProcess a, b;
  const std::string memo = temp_path("hosts.memo");
  const std::string profile =
      write_file("quick.json", R"({"name": "quick", "stage": {"points": [[1, 0.004], [64, 0.004]]},
    "draft": {"points": [[1, 0.002], [64, 0.002]]}, "edges": [{"latency": 0.002}, {"latency": 0.002}, {"latency": 0.002}]})");
  const Arguments stored = {"--profile", profile, "--compute", "stored",
                            "--memo",    memo,    "--hosts",   addresses({&a, &b})};
  const auto with = [](Arguments all, const Arguments& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  EXPECT_TRUE(fails(run(stored), 2, {"--memo " + memo, "--compute lazy"}));
  for (const Arguments& method : {methods()[0], methods()[1], methods()[3]}) {
    const json simulated = answer(with(
        method, {"--executor", "virtual", "--stages", "2", "--profile", profile, "--compute", "lazy", "--memo", memo}));
    const json there = json::parse(run(with(stored, method)).out, nullptr, false);
    EXPECT_EQ(there["tokens"], simulated["tokens"]) << method[1];
    EXPECT_GE(there["stored"]["asked"], 39) << "the last report and the last token go different ways";
    EXPECT_EQ(there["stage_computing"].size(), 2u);
    if (method[1] != "sd") {
      EXPECT_EQ(there["stored"]["missed"], 0) << method[1];
    }
  }
  EXPECT_TRUE(fails(run(with(stored, {"--method", "ar", "--temp", "0.7"})), 1, {"void", "not stored"}));
}

TEST(Hosts, AProfileOfOtherStagesIsRefused) {
  const StageProcess a;
  EXPECT_TRUE(fails(run({"--profile", "wan-6", "--hosts", addresses({&a, &a})}), 2, {"wan-6", "6 stages"}));
}

TEST(Hosts, AnSpdHeadBringsItsCutsAndNeedsSoManyHosts) {
  const std::string spd =
      tiny_head(*ModelFile::open(small_model()), {.kind = "spd"}).write(temp_path("hosts-spd.gguf"));
  const StageProcess a;
  const Arguments method = {"--method", "spd", "--head", spd, "--hosts"};
  const auto with = [&](const std::string& hosts) {
    Arguments all = method;
    all.push_back(hosts);
    return all;
  };
  EXPECT_EQ(answer(with(addresses({&a, &a})))["tokens"], answer({"--method", "ar"})["tokens"]);
  EXPECT_TRUE(fails(run(with(a.address)), 2, {spd, "2 stages", "--hosts", "names 1"}));
}

TEST(Hosts, OptionsThatContradictThemAreNamed) {
  EXPECT_TRUE(fails(run({"--hosts", "a:1", "--executor", "virtual"}), 2, {"--hosts", "--executor virtual"}));
  EXPECT_TRUE(fails(run({"--hosts", "a:1", "--stages", "2"}), 2, {"--hosts", "--stages"}));
  EXPECT_TRUE(fails(run({"--hosts", "a:1", "--cuts", "2"}), 2, {"--hosts", "--cuts"}));
  EXPECT_TRUE(fails(run({"--hosts", "a:b"}), 2, {"a:b", "HOST:PORT"}));
  EXPECT_TRUE(fails(run({"--executor", "hosts"}), 2, {"--hosts"}));
  EXPECT_TRUE(fails(run({"--secret", "x"}), 2, {"--secret", "--hosts"}));
  EXPECT_TRUE(fails(run({"--hosts", "a:1", "--compute", "stored"}), 2, {"--profile", "--memo"}));
  EXPECT_TRUE(fails(run_program({"stage", "--listen", "0.0.0.0:0"}), 2, {"--listen 0.0.0.0:0", "need a secret"}));
  EXPECT_TRUE(fails(run({"--hosts", "a:1,b:1,c:1,d:1,e:1"}), 2, {"4 layers"}));
}

TEST(Hosts, AFileNamesThemAndSaysWhatTheyAreGiven) {
  const std::string secret = temp_path("file-of-hosts.secret");
  fs::remove(secret);
  ASSERT_EQ(run_program({"secret", secret}).status, 0);
  const StageProcess a({"--secret", secret}), b({"--secret", secret});
  const std::string head = "secret = \"file-of-hosts.secret\"\n";
  const json plain = answer({"--method", "ar"});
  EXPECT_EQ(answer(of_file("two.toml", head + host_table(a) + host_table(b)))["tokens"], plain["tokens"]);
  const json cut = answer(of_file("cut.toml", head + host_table(a, "layers = 1\n") + host_table(b, "layers = 3\n")));
  EXPECT_EQ(cut["tokens"], plain["tokens"]);
  EXPECT_EQ(cut["stages"], 2);
}

TEST(Hosts, ADraftModelRunsWhereTheFileSays) {
  const StageProcess a, b;
  const std::string stages = host_table(a) + host_table(b);
  const Arguments methods[] = {
      {"--method", "sd"}, {"--method", "surge"}, {"--method", "pipespec"}, {"--method", "ssd"}};
  for (const std::string& file :
       {stages + host_table(b, "role = \"draft\"\n"), host_table(a) + host_table(b, "role = \"draft\"\n")})
    for (Arguments method : methods) {
      method.insert(method.end(), {"--draft", draft_of_small_model()});
      const json here = answer(method);
      const Arguments hosts = of_file("draft.toml", file);
      method.insert(method.end(), hosts.begin(), hosts.end());
      // On a busy machine the whole answer may come before the draft model's first word.
      int64_t drafted = 0;
      for (int attempt = 0; drafted == 0 && attempt < 8; ++attempt) {
        const json there = answer(method);
        EXPECT_EQ(there["tokens"], here["tokens"]) << method[1];
        drafted = there["drafted"];
      }
      EXPECT_GT(drafted, 0) << method[1];
    }
  EXPECT_TRUE(
      fails(run(of_file("draft.toml", stages + host_table(b, "role = \"draft\"\n"))), 2, {"--hosts", "--draft"}));
}

TEST(Hosts, ADraftModelRunsWhereItIsAskedTo) {
  const StageProcess a, b, c;
  Arguments method = {"--method", "surge", "--draft", draft_of_small_model()};
  const json here = answer(method);
  method.insert(method.end(), {"--hosts", addresses({&a, &b}), "--draft-on"});
  for (const std::string& place : {std::string("here"), std::string("0"), std::string("1"), c.address}) {
    Arguments there = method;
    there.push_back(place);
    EXPECT_EQ(answer(there)["tokens"], here["tokens"]) << place;
  }
  EXPECT_TRUE(fails(run({"--hosts", a.address, "--method", "ar", "--draft-on", "0"}), 2, {"--draft-on 0", "--draft"}));
  method.push_back("2");
  EXPECT_TRUE(fails(run(method), 2, {"--draft-on 2", "0 to 1"}));
}

TEST(Hosts, AHeadRunsWhereTheFileOrTheCommandLineSays) {
  const StageProcess a, b, c;
  const Arguments method = {"--method", "eagle3", "--head", head_of_small_model()};
  const json here = answer(method);
  std::vector<Arguments> places = {
      of_file("head.toml", host_table(a) + host_table(b) + host_table(c, "name = \"attic\"\nrole = \"draft\"\n"))};
  for (const std::string& place : {std::string("0"), c.address})
    places.push_back({"--hosts", addresses({&a, &b}), "--draft-on", place});
  for (const Arguments& place : places) {
    Arguments there = method;
    there.insert(there.end(), place.begin(), place.end());
    const json found = answer(there);
    EXPECT_EQ(found["tokens"], here["tokens"]) << place.back();
    EXPECT_GT(found["drafted"], 0) << place.back();
  }
  Arguments nobody = method;
  nobody.insert(nobody.end(), {"--hosts", a.address, "--draft-on", "127.0.0.1:1"});
  EXPECT_TRUE(fails(run(nobody), 1, {"127.0.0.1:1", "nobody listens there"}));
  nobody =
      of_file("heads.toml", host_table(a) + host_table(b, "role = \"draft\"\n") + host_table(c, "role = \"draft\"\n"));
  nobody.insert(nobody.end(), method.begin(), method.end());
  EXPECT_TRUE(fails(run(nobody), 2, {"2 hosts", "--head", "role = \"draft\""}));
}

TEST(Hosts, WhereOneCantReachTheHeadWhatItReadsGoesByWayOfTheCoordinator) {
  const StageProcess a, b, c;
  const Arguments method = {"--method", "eagle3", "--head", head_of_small_model()};
  const Gate gate(c.address, 1);  // first the coordinator comes, then one of the stages
  Arguments there = method;
  there.insert(there.end(), {"--hosts", addresses({&a, &b}), "--draft-on", gate.address});
  const Ran ran = run(there);
  EXPECT_EQ(ran.status, 0) << ran.err;
  const json found = json::parse(ran.out, nullptr, false);
  EXPECT_EQ(found["tokens"], answer(method)["tokens"]);
  EXPECT_GT(found["drafted"], 0) << "as it reads everything that stages tap";
  EXPECT_NE(ran.err.find(" can't reach the head (host " + gate.address + ": "), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("what the head reads goes by way of this process\n"), std::string::npos) << ran.err;
  EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
}

TEST(Hosts, MistakesInTheirFileAreNamed) {
  const StageProcess a, b;
  EXPECT_TRUE(fails(run(of_file("wrong.toml", "[[host]]\naddress = \"a:b\"\n")), 2, {"wrong.toml:2", "HOST:PORT"}));
  EXPECT_TRUE(fails(run({"--hosts", "nowhere/hosts.toml"}), 2, {"nowhere/hosts.toml", "docs/hosts.md"}));
  EXPECT_TRUE(fails(run(of_file("much.toml", host_table(a, "layers = 3\n") + host_table(b, "layers = 3\n"))), 2,
                    {"6 layers", "has 4"}));
  Arguments twice = of_file("twice.toml", host_table(a, "layers = 1\n") + host_table(b, "layers = 3\n"));
  twice.insert(twice.end(), {"--cuts", "2"});
  EXPECT_TRUE(fails(run(twice), 2, {"--cuts", "layers", "leave one"}));
  EXPECT_TRUE(fails(run(of_file("small.toml", host_table(a, "memory = 0.00001\n") + host_table(b))), 2,
                    {"--hosts", "memory", "GiB"}));
  EXPECT_TRUE(fails(run(of_file("gone.toml", "[[host]]\nname = \"attic\"\naddress = \"127.0.0.1:1\"\n")), 1,
                    {"host attic (127.0.0.1:1): ", "sluice stage"}));
}

// Hosts that are lost in the middle of an answer over two of them. Passes take 2 ms, so there is a middle.
class Losing : public testing::Test {
 protected:
  static Arguments arguments(const Arguments& more = {}) {
    Arguments all = {"run", "-m",           small_model(), "--threads", "1",        "-n",    "300",  "-c",
                     "512", "--ignore-eos", "--method",    "surge",     "--source", "ngram", "hello"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Begun, and some of it said.
  static std::unique_ptr<Program> begin(const std::string& hosts, const Arguments& more = {}, int ms = 2) {
    Arguments all = arguments({"--profile", slow(ms), "--hosts", hosts});
    all.insert(all.end(), more.begin(), more.end());
    auto program = std::make_unique<Program>(all);
    program->read_at_least(20);
    return program;
  }
  static std::string slow(int ms) {
    const std::string pass = std::to_string(ms) + "e-3";
    return write_file(std::to_string(ms) + "-ms.json",
                      R"({"name": "slow", "stage": {"points": [[1, )" + pass + "], [256, " + pass +
                          R"(]]}, "draft": {"points": [[1, 0.001]]}, "link": {"latency": 0}})");
  }
  // It went on to what one process says, and said who was lost and who stands in.
  static void expect_same(Program& answering, const std::vector<std::string>& words) {
    const Ran ran = answering.wait();
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, run_program(arguments()).out);
    for (const std::string& word : words) EXPECT_NE(ran.err.find(word), std::string::npos) << word << " in " << ran.err;
  }
  std::string both() const { return addresses({&a_, &b_}); }

  StageProcess a_, b_;
};

TEST_F(Losing, AHostThatDiesIsReplacedByASpare) {
  const StageProcess spare({"--spare"});
  const auto answering = begin(both(), {"--spares", spare.address});
  b_.program().signal(SIGKILL);
  expect_same(*answering,
              {"sluice: host " + b_.address + ": ", "host " + spare.address + " has the layers of " + b_.address});
}

TEST_F(Losing, EdgesByWayOfTheCoordinatorAreLaidAnew) {
  for (const size_t victim : {0, 1, 2}) {
    StageProcess hosts[3], spare;
    const auto answering = begin(addresses({&hosts[0], &hosts[1], &hosts[2]}), {"--relay", "--spares", spare.address});
    hosts[victim].program().signal(SIGKILL);
    expect_same(*answering, {"host " + spare.address + " has the layers of " + hosts[victim].address,
                             "2 edges by way of this process"});
  }
}

TEST_F(Losing, WhoCantReachTheNextIsKnownFromBefore) {
  StageProcess c;
  const StageProcess spare;
  const Gate gate(b_.address, 1);
  const auto answering = begin(a_.address + "," + gate.address + "," + c.address, {"--spares", spare.address});
  c.program().signal(SIGKILL);
  const Ran ran = answering->wait();
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, run_program(arguments()).out);
  const std::string said = "can't reach the next stage";
  EXPECT_NE(ran.err.find(said), std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find(said), ran.err.rfind(said)) << "it was tried again: " << ran.err;
  EXPECT_NE(ran.err.find("1 edge by way of this process"), std::string::npos) << ran.err;
}

TEST_F(Losing, AHostThatDiesIsReplacedByItsNeighbour) {
  const auto answering = begin(both());
  a_.program().signal(SIGKILL);
  expect_same(*answering, {"host " + b_.address + " has the layers of " + a_.address});
}

TEST_F(Losing, AHostWithADeviceIsReplacedAndTheTextMayBeAnother) {
  StageProcess device({"--device", "ggml:cpu"});
  const auto answering = begin(a_.address + "," + device.address);
  device.program().signal(SIGKILL);
  const Ran ran = answering->wait();
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find(a_.address + " has the layers of " + device.address), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("the text may be another one, since bits are width-locked only"), std::string::npos)
      << ran.err;
}

TEST_F(Losing, AHostThatIsStartedAgainIsBack) {
  const auto answering = begin(b_.address);
  b_.program().signal(SIGKILL);
  static_cast<void>(b_.program().wait());
  const StageProcess again({"--listen", b_.address});
  expect_same(*answering, {"host " + b_.address + " is back"});
}

TEST_F(Losing, AHostThatStopsIsGivenUp) {
  const auto answering = begin(both());
  a_.program().signal(SIGSTOP);
  expect_same(*answering, {a_.address + ": it has been silent for 0.75 s", b_.address + " has the layers"});
  a_.program().signal(SIGCONT);
}

TEST_F(Losing, AHostThatIsShutDownSaysSoAndItsLayersMove) {
  const auto answering = begin(both());
  b_.program().signal(SIGINT);
  EXPECT_EQ(b_.program().wait().status, 0);
  expect_same(*answering, {b_.address + ": it is being shut down", a_.address + " has the layers"});
}

TEST_F(Losing, AHostThatIsToGoMakesTheAnswerReadyAndTakesNoOther) {
  const auto answering = begin(both(), {}, 20);  // some seconds
  b_.program().signal(SIGTERM);
  std::string said;
  for (int tries = 0; tries < 20 && said.find("shut down") == std::string::npos; ++tries)
    said = run({"--hosts", b_.address}).err;
  EXPECT_NE(said.find(b_.address + ": it is being shut down"), std::string::npos) << said;
  const Ran ran = answering->wait();
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, run_program(arguments()).out);
  EXPECT_EQ(ran.err.find("has the layers"), std::string::npos) << ran.err;
  EXPECT_EQ(b_.program().wait().status, 0);
}

TEST_F(Losing, AHostThatIsToGoWaitsForPassesLongerThanItsPatience) {
  Arguments few = arguments({"--profile", slow(1300), "--hosts", both()});
  std::ranges::replace(few, std::string("300"), std::string("3"));
  Program answering(few);
  answering.read_at_least(1);
  b_.program().signal(SIGTERM);
  const Ran ran = answering.wait();
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.err.find("shut down"), std::string::npos) << ran.err;
  EXPECT_EQ(b_.program().wait().status, 0);
}

TEST_F(Losing, AHostThatMayNotWaitGoesAtOnce) {
  StageProcess hasty({"--drain", "0"});
  const auto answering = begin(a_.address + "," + hasty.address);
  hasty.program().signal(SIGTERM);
  EXPECT_EQ(hasty.program().wait().status, 0);
  expect_same(*answering, {hasty.address + ": it is being shut down"});
}

TEST_F(Losing, OneAfterAnotherIsReplaced) {
  const StageProcess c, d;
  const auto answering = begin(both(), {"--spares", addresses({&c, &d})});
  b_.program().signal(SIGKILL);
  answering->read_at_least(150);
  a_.program().signal(SIGKILL);
  expect_same(*answering,
              {c.address + " has the layers of " + b_.address, d.address + " has the layers of " + a_.address});
}

TEST_F(Losing, WithoutAnybodyInItsPlaceTheAnswerEndsWithTheRemedy) {
  const auto answering = begin(b_.address);
  b_.program().signal(SIGKILL);
  const Ran ran = answering->wait();
  EXPECT_EQ(ran.status, 1);
  const size_t last = ran.err.rfind("sluice: ", ran.err.size() - 1);
  ASSERT_NE(last, std::string::npos) << ran.err;
  const std::string error = ran.err.substr(last);
  EXPECT_TRUE(error.starts_with("sluice: host " + b_.address + ": ")) << ran.err;
  EXPECT_NE(error.find("--spares"), std::string::npos) << ran.err;
  EXPECT_TRUE(ran.out.ends_with("\n")) << "the error would stand behind the text";
}

TEST_F(Losing, AnInterruptEndsTheWaitForSomebody) {
  const auto answering = begin(b_.address);
  b_.program().signal(SIGKILL);
  static_cast<void>(b_.program().wait());
  std::this_thread::sleep_for(std::chrono::seconds(1));  // of five in which somebody is looked for
  answering->signal(SIGINT);
  const Ran ran = answering->wait();
  EXPECT_NE(ran.err.find("its layers go to others"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("interrupted"), std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find("nobody has taken"), std::string::npos) << ran.err;
}

TEST_F(Losing, ASpareHoldsNoStageOfAPipelineThatIsWhole) {
  const StageProcess spare({"--spare"});
  EXPECT_TRUE(fails(run({"--hosts", spare.address}), 1, {spare.address, "it is a spare", "--spares"}));
  EXPECT_TRUE(fails(run({"--spares", spare.address}), 2, {"--spares", "--hosts"}));
}

TEST_F(Losing, ADraftModelsHostIsReplacedToo) {
  const StageProcess spare;
  const std::string text =
      host_table(a_) + host_table(b_, "role = \"draft\"\n") + host_table(spare, "role = \"spare\"\n");
  const auto answering = begin(write_file("lost-draft.toml", text), {"--draft", draft_of_small_model()});
  b_.program().signal(SIGKILL);
  expect_same(*answering, {"host " + spare.address + " has the layers of " + b_.address});
}

TEST_F(Losing, WhenTheCoordinatorDiesTheHostsServeTheNext) {
  const auto answering = begin(both());
  answering->signal(SIGKILL);
  EXPECT_EQ(answering->wait().status, -SIGKILL);
  EXPECT_EQ(run({"--hosts", both()}).status, 0);
}

TEST_F(Losing, AChatGoesOnWhenItsHostIsBack) {
  if (!Terminal::can_be_had()) GTEST_SKIP() << "the system gives no terminal";
  Terminal chat({"chat", "-m", small_model(), "-n", "8", "--threads", "1", "--hosts", b_.address});
  EXPECT_TRUE(chat.shows("> "));
  chat.type("hello\n");
  EXPECT_TRUE(chat.shows("]"));
  EXPECT_TRUE(chat.shows("> "));
  b_.program().signal(SIGKILL);
  static_cast<void>(b_.program().wait());
  chat.type("again\n");
  EXPECT_TRUE(chat.shows("nobody has taken its layers")) << chat.screen();
  EXPECT_TRUE(chat.shows("> "));
  const StageProcess again({"--listen", b_.address});
  chat.type("again\n");
  EXPECT_TRUE(chat.shows("]")) << chat.screen();
  chat.type(kCtrlD);
  EXPECT_EQ(chat.wait(), 0) << chat.screen();
}

TEST(Hosts, ServeChatsAndBenches) {
  const StageProcess a, b;
  const std::string hosts = addresses({&a, &b});
  const Ran here = run_program({"chat", "-m", small_model(), "-n", "8"}, {.input = "hello\nagain\n"});
  const Ran there =
      run_program({"chat", "-m", small_model(), "-n", "8", "--hosts", hosts}, {.input = "hello\nagain\n"});
  EXPECT_EQ(there.status, 0) << there.err;
  EXPECT_EQ(there.out, here.out);
  const std::string folder = temp_path("hosts-data");
  fs::create_directories(folder);
  write_file("hosts-data/few.jsonl", "{\"id\": \"1\", \"turns\": [\"one two one two\", \"three\"]}\n");
  const std::string out = temp_path("hosts-bench.json");
  const Ran bench = run_program({"bench", "-m", small_model(), "--data", folder, "--tasks", "few", "--methods",
                                 "ar,specpipe,surge", "-n", "16", "--hosts", hosts, "--json", out});
  EXPECT_EQ(bench.status, 0) << bench.err;
  EXPECT_NE(bench.out.find("identical: yes"), std::string::npos) << bench.out;
  EXPECT_NE(bench.out.find("executor hosts"), std::string::npos) << bench.out;
  std::ifstream file(out);
  const json runs = json::parse(file)["runs"];
  int64_t first = 0, next_turns = 0;
  for (const json& turn : runs) {
    if (turn["turn"] == 0) {
      first = turn["prompt_tokens"];
      continue;
    }
    ++next_turns;
    EXPECT_GE(turn["reused_tokens"], first) << turn["method"] << ": the next turn computes what is new";
  }
  EXPECT_GT(first, 0);
  EXPECT_EQ(next_turns, 3);
}

// Over two hosts, of which the second takes three times as long for a layer. Rows cost alike, wherever they are.
Arguments over_unequal(const std::string& hosts) {
  const std::string pace = write_file("unequal.json", R"({"layer": {"points": [[1, 0.002], [64, 0.128]]},
    "head": {"points": [[1, 0.0002]]}, "draft": {"points": [[1, 0.0005]]}, "speeds": [1, 0.34]})");
  return {"-m", small_model(), "--hosts", hosts, "--profile", pace, "-n", "16", "--json"};
}

json plan_over(Arguments there, const Arguments& more = {}) {
  const std::string folder = temp_path("hosts-plan");
  fs::create_directories(folder);
  write_file("hosts-plan/few.jsonl", "{\"turns\": [\"one two one two\"]}\n");
  there.insert(there.begin(), {"plan", "--data", folder, "--tasks", "few", "--seconds", "20"});
  there.insert(there.end(), more.begin(), more.end());
  const Ran ran = run_program(there);
  EXPECT_EQ(ran.status, 0) << ran.err;
  return json::parse(ran.out, nullptr, false);
}

// The model is too large for either of them alone.
TEST(Hosts, ArePlannedForAndRunByThePlan) {
  const StageProcess a, b;
  std::string text;
  for (const StageProcess* host : {&a, &b}) text += "[[host]]\naddress = \"" + host->address + "\"\nmemory = 0.0009\n";
  Arguments there = over_unequal(write_file("planned.toml", text));
  const json plan = plan_over(there);
  EXPECT_EQ(plan["cuts"], json::parse("[3]")) << plan;
  EXPECT_EQ(plan["left_out"], json::array());
  EXPECT_GE(plan["methods"].size(), 4u);
  EXPECT_NE(plan["command"].get<std::string>().find("planned.toml"), std::string::npos);
  std::ifstream file(plan["profile"].get<std::string>());
  const json measured = json::parse(file, nullptr, false);
  ASSERT_EQ(measured["speeds"].size(), 2u) << measured;
  const double ratio = measured["speeds"][1].get<double>() / measured["speeds"][0].get<double>();
  EXPECT_GT(ratio, 0.1) << measured;
  EXPECT_LT(ratio, 0.7) << measured;
  there.insert(there.begin(), {"run", "one two one two"});
  const Ran ran = run_program(there);
  EXPECT_EQ(ran.status, 0) << ran.err;
  const std::string said = "by sluice plan: cuts 3, auto begins with " + plan["best"].get<std::string>();
  EXPECT_NE(ran.err.find(said), std::string::npos) << ran.err;
  there.insert(there.end(), {"--cuts", "2"});
  EXPECT_EQ(run_program(there).err.find("cuts 3"), std::string::npos) << "what is asked for stays";
}

// With guesses that are hardly ever right a token goes through all layers before the next one, best on the fast host.
TEST(Hosts, ThatAreTooSlowToBeOfUseAreLeftOut) {
  const StageProcess a, b;
  const json plan = plan_over(over_unequal(addresses({&a, &b})));
  EXPECT_EQ(plan["hosts"], json::array({a.address})) << plan;
  EXPECT_EQ(plan["left_out"], json::array({b.address}));
  EXPECT_EQ(plan["stages"], 1);
}

// Whatever it finds, there are several places for it, and what it says can be typed.
TEST(Hosts, ArePlannedForWithADraftModel) {
  const StageProcess a, b;
  Arguments there = {
      "-m",        small_model(), "--draft", draft_of_small_model(), "--hosts", addresses({&a, &b}), "-n", "16",
      "--threads", "1",           "--json"};
  const json plan = plan_over(there);
  EXPECT_GE(plan["draft_places"].size(), 2u) << plan;
  const std::string place = plan["draft_on"], command = plan["command"];
  EXPECT_EQ(command.find("--draft-on " + place) != command.npos, place != "here") << plan;
  std::string hosts;
  for (const json& host : plan["hosts"]) hosts += (hosts.empty() ? "" : ",") + host.get<std::string>();
  EXPECT_NE(command.find("--hosts " + hosts), command.npos) << command;
  Arguments by_it = {"--draft", draft_of_small_model(), "--hosts", hosts};
  EXPECT_EQ(answer(by_it)["tokens"], answer({"--draft", draft_of_small_model()})["tokens"]);
  const json elsewhere = plan_over(there, {"--draft-on", b.address});
  EXPECT_NE(elsewhere["draft_on"], "here");
  EXPECT_EQ(elsewhere["draft_places"], json::array());
  *(std::ranges::find(there, "--hosts") + 1) = addresses({&a, &a});
  EXPECT_LE(plan_over(there)["hosts"].size(), 2u) << "one that holds two stages is not freed by leaving out one";
}

}  // namespace
}  // namespace sluice::test
