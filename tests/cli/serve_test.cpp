// `sluice serve` as it is started, and the official clients of OpenAI's and Anthropic's APIs against it.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/program.h"
#include "model/model_file.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

// At a port that the system chooses, unless one is named.
Program::Arguments serve_with(const Program::Arguments& more) {
  Program::Arguments arguments = {"serve", "--threads", "1"};
  if (std::ranges::find(more, "-m") == more.end()) arguments.insert(arguments.end(), {"-m", small_model()});
  if (std::ranges::find(more, "--port") == more.end()) arguments.insert(arguments.end(), {"--port", "0"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Where it says that it is.
std::string url_of(Program& program) {
  const std::string line = program.read_line();
  const size_t begin = line.find("http://");
  return begin == line.npos ? "" : line.substr(begin, line.find(',') - begin);
}

Ran refused(const Program::Arguments& more) { return run_program(serve_with(more)); }

TEST(ServeCommand, SaysWhereItIsAndEndsWhenItIsTold) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Program program(serve_with({}));
    EXPECT_TRUE(url_of(program).starts_with("http://127.0.0.1:"));
    program.signal(signal);
    const Ran ran = program.wait();
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    EXPECT_NE(ran.out.find("for this machine only"), std::string::npos) << ran.out;
  }
}

// Asks for a stream, sends the signals once it has begun, and says what came.
constexpr const char* kSignalsInTheMiddle = R"(
import http.client, json, os, signal, sys, time, urllib.request
url, pid, signals = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
body = {"prompt": "one two", "max_tokens": 20, "ignore_eos": True, "stream": True}
answer = urllib.request.urlopen(url + "/completions", json.dumps(body).encode())
answer.readline()
for _ in range(signals):
    os.kill(pid, signal.SIGTERM)
    time.sleep(0.3)
try:
    whole = answer.read().endswith(b"data: [DONE]\n\n")
except (http.client.IncompleteRead, ConnectionError):
    whole = False
sys.exit(0 if whole == (signals == 1) else 1)
)";

TEST(ServeCommand, AnswersWhoHasAskedBeforeItEndsUnlessItIsToldTwice) {
  const std::string script = write_file("signals.py", kSignalsInTheMiddle);
  const std::string slow = write_file("slow.json", R"({"stage": {"points": [[1, 0.1], [256, 0.1]]}})");
  for (const int signals : {1, 2}) {
    Program program(serve_with({"--profile", slow, "--method", "ar"}));
    const std::string url = url_of(program);
    ASSERT_FALSE(url.empty());
    EXPECT_EQ(std::system(("python3 " + script + " " + url + " " + std::to_string(program.pid()) + " " +
                           std::to_string(signals))
                              .c_str()),
              0);
    const Ran ran = program.wait();
    EXPECT_EQ(ran.status, signals == 1 ? 0 : -SIGTERM);
    EXPECT_TRUE(ran.err.starts_with("sluice serve: no further requests")) << ran.err;
  }
}

// Streams that begin at once, by many kinds of requests, alone and again while engines are killed: the same events.
constexpr const char* kEnginesAreKilled = R"py(
import concurrent.futures, json, os, random, signal, sys, threading, time, urllib.request
url, pid, kills = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
bodies = []
for i in range(12):
    body = {"prompt": "one two three"[:5 + i], "max_tokens": 60, "ignore_eos": True, "stream": True, "seed": i,
            "method": ["ar", "specpipe", "surge"][i % 3], "temperature": [0, 0.9][i % 2]}
    if i % 4 == 1: body["n"] = 2
    if i % 4 == 2: body["stop"] = ["zq", "e t"]
    if i % 4 == 3: body["logprobs"] = 2
    bodies.append(body)

def children(parent):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    if int(file.read().rsplit(")", 1)[1].split()[1]) == parent: found.append(int(entry))
            except OSError:
                pass
    return found

def engine():
    for nursery in children(pid):
        for process in children(nursery): return process
    return None

def answer(body):
    texts, probabilities, ends = {}, {}, {}
    request = urllib.request.Request(url + "/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as stream:
        for line in stream:
            if not line.startswith(b"data: {"): continue
            event = json.loads(line[6:])
            assert "error" not in event, event
            for choice in event["choices"]:
                index = choice["index"]
                texts[index] = texts.get(index, "") + choice["text"]
                ends[index] = choice["finish_reason"] or ends.get(index)
                if choice.get("logprobs"): probabilities.setdefault(index, []).extend(choice["logprobs"]["tokens"])
    return texts, probabilities, ends

with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
    before = list(pool.map(answer, bodies))
    over = threading.Event()
    killed = 0
    def kill():
        global killed
        dice = random.Random(1)
        while not over.is_set() and killed < kills:
            time.sleep(dice.uniform(0.1, 0.7))
            victim = engine()
            if victim is not None:
                os.kill(victim, signal.SIGKILL)
                killed += 1
    killer = threading.Thread(target=kill)
    killer.start()
    while killed < kills:
        after = list(pool.map(answer, bodies))
        assert after == before, [pair for pair in zip(before, after) if pair[0] != pair[1]][0]
    over.set()
    killer.join()
metrics = urllib.request.urlopen(url[:-3] + "/metrics").read().decode()
restarts = [line for line in metrics.split("\n") if line.startswith("sluice_engine_restarts_total{")][0]
assert int(restarts.split()[-1]) == kills, restarts
)py";

TEST(ServeCommand, AnswersGoOnWhenTheEngineIsKilled) {
  const std::string script = write_file("killed.py", kEnginesAreKilled);
  const std::string slow = write_file("slow.json", R"({"stage": {"points": [[1, 0.01], [256, 0.02]]}})");
  Program program(serve_with({"--profile", slow, "--concurrency", "4"}));
  const std::string url = url_of(program);
  ASSERT_FALSE(url.empty());
  EXPECT_EQ(std::system(("python3 " + script + " " + url + " " + std::to_string(program.pid()) + " 5").c_str()), 0);
  program.signal(SIGTERM);
  const Ran ran = program.wait();
  EXPECT_EQ(ran.status, 0);
  EXPECT_NE(ran.err.find("sluice serve: the engine has ended (Killed); another one goes on with "), std::string::npos)
      << ran.err;
}

// An engine that says why it ends is followed by another one too, but not where that would end for the same reason.
TEST(ServeCommand, AModelThatHasChangedEndsTheServer) {
  const std::string model = temp_path("changes.gguf");
  fs::copy_file(small_model(), model, fs::copy_options::overwrite_existing);
  const std::string slow = write_file("slow.json", R"({"stage": {"points": [[1, 0.05], [256, 0.05]]}})");
  Program program(serve_with({"-m", model, "--profile", slow, "--method", "ar"}));
  const std::string url = url_of(program);
  ASSERT_FALSE(url.empty());
  fs::last_write_time(model, fs::last_write_time(model) + std::chrono::seconds(7));
  const std::string ask =
      "python3 -c 'import json, sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "
      "\"/completions\", json.dumps({\"prompt\": \"one\", \"max_tokens\": 60}).encode())' ";
  EXPECT_NE(std::system((ask + url + " 2>/dev/null").c_str()), 0);
  EXPECT_TRUE(fails(program.wait(), 1, {model}));
}

TEST(ServeCommand, RefusesWhatMakesNoSense) {
  EXPECT_TRUE(fails(refused({"--host", "0.0.0.0"}), 2, {"--host", "--api-key"}));
  EXPECT_TRUE(fails(refused({"--api-key-file", "/no/such/file"}), 2, {"--api-key-file", "/no/such/file"}));
  EXPECT_TRUE(fails(refused({"--api-key-file", write_file("empty.key", "\n")}), 2, {"--api-key"}));
  EXPECT_TRUE(fails(refused({"--api-key", "with space"}), 2, {"--api-key"}));
  EXPECT_TRUE(fails(refused({"--concurrency", "0"}), 2, {"--concurrency"}));
  EXPECT_TRUE(fails(refused({"--port", "70000"}), 2, {"--port"}));
  EXPECT_TRUE(fails(refused({"--drain", "-1"}), 2, {"--drain"}));
  Program first(serve_with({}));
  const std::string url = url_of(first);
  const std::string port = url.substr(url.rfind(':') + 1, url.rfind('/') - url.rfind(':') - 1);
  EXPECT_TRUE(fails(refused({"--port", port}), 1, {"--port " + port}));
}

// With room for tools, which prompts tell byte by byte.
std::string roomy_model() {
  TinyModelSpec spec;
  spec.context_length = 4096;
  spec.chat_template =
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  return write_tiny_model(spec, temp_path("roomy.gguf"));
}

class ServeCommandClients : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Official, ServeCommandClients, testing::Values("openai", "anthropic"),
                         [](const auto& client) { return std::string(client.param); });

TEST_P(ServeCommandClients, AreServed) {
  const fs::path python = fs::path(SLUICE_SOURCE) / ".venv/bin/python";
  const std::string client = GetParam();
  if (std::system(("\"" + python.string() + "\" -c 'import " + client + "' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "tools/setup --tests installs " << client;
  const std::string key = write_file(client + ".key", "a-key-of-ours\n");
  const std::string model = roomy_model();
  Program program(serve_with({"-m", model, "--api-key-file", key, "--stages", "2", "--concurrency", "3"}));
  const std::string url = url_of(program);
  ASSERT_FALSE(url.empty());
  const std::string name = ModelFile::open(model)->hparams().name;
  const std::string script = SLUICE_SOURCE "/tests/cli/" + client + "_client.py";
  EXPECT_EQ(
      std::system(("\"" + python.string() + "\" " + script + " " + url + " \"" + name + "\" a-key-of-ours").c_str()),
      0);
  program.signal(SIGTERM);
  const Ran ran = program.wait();
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "") << "nothing is logged of what was asked";
}

// What an answer by this method was guessed with.
std::string source_of(const std::string& url, const std::string& method) {
  const std::string out = temp_path("source");
  const std::string body = R"({"prompt": "one two", "max_tokens": 8, "method": ")" + method + "\"}";
  const std::string python =
      "python3 -c 'import json, sys, urllib.request; print(json.load(urllib.request.urlopen(sys.argv[1], "
      "sys.argv[2].encode()))[\"usage\"][\"sluice\"][\"source\"], end=\"\")' ";
  if (std::system((python + url + "/completions '" + body + "' >" + out).c_str()) != 0) return "(no answer)";
  std::ifstream file(out);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(ServeCommand, TheHeadOfAutoIsNoSourceOfMethodsThatAskForNone) {
  const std::string model = default_model_path();
  if (model.empty()) GTEST_SKIP() << "the default model is not installed";
  Program program(serve_with({"-m", model, "-c", "256"}));
  const std::string url = url_of(program);
  ASSERT_FALSE(url.empty());
  EXPECT_EQ(source_of(url, "surge"), "ngram");
  EXPECT_EQ(source_of(url, "eagle3"), "head");
}

// Two processes that hold stages.
struct Hosts {
  Program stage{{"stage", "--listen", "127.0.0.1:0", "--threads", "1"}};
  Program next{{"stage", "--listen", "127.0.0.1:0", "--threads", "1"}};

  std::string addresses() { return address(stage) + "," + address(next); }
  static std::string address(Program& program) {
    const std::string line = program.read_line(), before = "listening on ";
    return line.substr(line.find(before) + before.size(), line.find(',') - line.find(before) - before.size());
  }
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ServeCommand, ServesOverHosts) {
  Hosts hosts;
  Program program(serve_with({"--hosts", hosts.addresses()}));
  const std::string url = url_of(program);
  ASSERT_FALSE(url.empty());
  const std::string text = temp_path("curled"),
                    body = R"('{"prompt": "one two", "max_tokens": 12, "ignore_eos": true}')";
  const std::string python =
      "python3 -c 'import json, sys, urllib.request; print(json.load(urllib.request.urlopen("
      "sys.argv[1], sys.argv[2].encode()))[\"choices\"][0][\"text\"], end=\"\")' ";
  ASSERT_EQ(std::system((python + url + "/completions " + body + " >" + text).c_str()), 0);
  const Ran alone = run_program({"run", "-m", small_model(), "--raw", "-n", "12", "--ignore-eos", "one two"});
  EXPECT_NE(alone.out, "");
  EXPECT_EQ(read_file(text) + "\n", alone.out);
}

// JSON of a schema and a word of a grammar by each method, an answer a line; the same by all of them.
constexpr const char* kForms = R"(
import json, sys, urllib.request
schema = {"type": "object", "required": ["sky", "degrees"], "properties": {
    "sky": {"enum": ["blue", "grey"]}, "degrees": {"type": "integer", "minimum": 0, "maximum": 99}}}
forms = [{"json_schema": schema}, {"grammar": 'root ::= ("a" | "b" | "cd"){20}'}]
for form in forms:
    for temperature in (0, 1):
        texts = set()
        for method in ("ar", "surge", "specpipe"):
            body = {"prompt": "one two one two", "max_tokens": 300, "method": method, "temperature": temperature,
                    "seed": 5, **form}
            answer = urllib.request.urlopen(sys.argv[1] + "/completions", json.dumps(body).encode())
            choice = json.load(answer)["choices"][0]
            assert choice["finish_reason"] == "stop", choice
            texts.add(choice["text"])
        assert len(texts) == 1, texts
        print(json.dumps(texts.pop()))
)";

TEST(ServeCommand, FormsOverHostsAreThoseOfOneProcess) {
  const std::string script = write_file("forms.py", kForms);
  const auto answers = [&](const Program::Arguments& more, const std::string& to) {
    Program program(serve_with(more));
    const std::string out = temp_path(to), url = url_of(program);
    EXPECT_EQ(std::system(("python3 " + script + " " + url + " >" + out).c_str()), 0);
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait().status, 0);
    return read_file(out);
  };
  Hosts hosts;
  const std::string here = answers({}, "forms-here"), there = answers({"--hosts", hosts.addresses()}, "forms-there");
  EXPECT_EQ(std::ranges::count(here, '\n'), 4) << here;
  EXPECT_NE(here.find("degrees"), here.npos) << here;
  EXPECT_EQ(there, here);
}

}  // namespace
}  // namespace sluice::test
