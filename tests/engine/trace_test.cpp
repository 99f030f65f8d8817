#include "engine/trace.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/synthetic_trace.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::synthetic_trace;

// Everything a token may hold that could end a string, an element or a parser.
const std::string kHostile[] = {"</script><script>alert(1)</script>",
                                "<!--",
                                "\"quoted\"",
                                "back\\slash",
                                "line\nbreak\r\ttab",
                                std::string("nul\0nul", 7),
                                "\xff\xfe",
                                "\xe2\x82",
                                "\xc0\xaf",
                                "\xed\xa0\x80",
                                "\xf5\x80\x80\x80",
                                "]]>",
                                "@TRACE@",
                                "\u2028\u2029",
                                "\x7f\x1b[31m",
                                "🌊",
                                ""};

Trace hostile_trace() {
  Trace trace;
  trace.header = {.model = "</script>", .method = "\xff", .source = "\"", .executor = "<!--", .profile = "\\"};
  trace.header.decode_end = 1;
  TraceBatch batch{.id = BatchId(0)};
  for (const std::string& text : kHostile) {
    batch.rows.push_back({.node = NodeId(0), .text = text});
    trace.emissions.push_back({.time = 0.5, .text = text, .hit = false});
  }
  trace.batches.push_back(batch);
  trace.spans.push_back({StageId(0), BatchId(0), 0, 1, 1});
  return trace;
}

// The text of the last or only script element of the kind that `open` begins.
std::string script(const std::string& page, const std::string& open) {
  const size_t begin = page.rfind(open);
  if (begin == std::string::npos) return "";
  const size_t end = page.find("</script>", begin);
  return page.substr(begin + open.size(), end - begin - open.size());
}
std::string data_of(const std::string& page) { return script(page, "<script type=\"application/json\" id=\"trace\">"); }

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) n++;
  return n;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

class TraceFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sluice_trace_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.insert(entry.path().filename().string());
    return names;
  }

  fs::path folder_;
  const Trace trace_ = synthetic_trace(3, 20, 4, 0.9);
};

TEST(Trace, UtilisationIsTheBusyShareOfTheDecodingWindow) {
  Trace trace;
  trace.header.stages = 4;
  trace.header.decode_begin = 10;
  trace.header.decode_end = 20;
  trace.spans = {{StageId(0), BatchId(0), 5, 12, 1},   // 2 of it inside
                 {StageId(0), BatchId(1), 15, 25, 1},  // 5
                 {StageId(1), BatchId(0), 11, 14, 1},  // overlapping: 11 to 16
                 {StageId(1), BatchId(1), 12, 16, 1}, {StageId(1), BatchId(2), 13, 14, 1},
                 {StageId(2), BatchId(0), 0, 10, 1},    // before
                 {StageId(3), BatchId(0), 0, 30, 1},    // throughout
                 {StageId(9), BatchId(0), 10, 20, 1}};  // no such stage
  EXPECT_EQ(trace.utilisation(), (std::vector<double>{0.7, 0.5, 0.0, 1.0}));
}

TEST(Trace, UtilisationOfNoTimeIsZero) {
  Trace trace;
  trace.header.stages = 2;
  trace.spans = {{StageId(0), BatchId(0), 0, 1, 1}};
  EXPECT_EQ(trace.utilisation(), (std::vector<double>{0.0, 0.0}));
}

TEST(ChromeTrace, IsValidWhateverBytesTheTokensHold) {
  const std::string json = hostile_trace().chrome_json();
  const Json parsed = Json::parse(json);  // throws on bytes that are not UTF-8
  std::vector<std::string> names;
  for (const Json& event : parsed["traceEvents"]) {
    if (event["ph"] == "i" && event["cat"] == "token") names.push_back(event["name"]);
  }
  ASSERT_EQ(names.size(), std::size(kHostile));
  EXPECT_EQ(names[0], kHostile[0]);
  EXPECT_EQ(names[5], kHostile[5]);
  EXPECT_NE(names[6].find("\xEF\xBF\xBD"), std::string::npos);  // U+FFFD
}

TEST(ChromeTrace, ABatchIsASliceAtEachStageAndArrowsLinkThem) {
  const Trace trace = synthetic_trace(4, 30, 4, 0.95);
  const Json parsed = Json::parse(trace.chrome_json());
  std::map<int, std::vector<Json>> slices, arrows;
  size_t flushes = 0, tokens = 0;
  for (const Json& event : parsed["traceEvents"]) {
    const std::string kind = event["ph"];
    if (kind == "X") slices[event["args"]["batch"]].push_back(event);
    if (kind == "s" || kind == "t" || kind == "f") arrows[event["id"]].push_back(event);
    if (kind == "i") (event["cat"] == "flush" ? flushes : tokens)++;
  }
  EXPECT_EQ(tokens, trace.emissions.size());
  EXPECT_EQ(flushes, static_cast<size_t>(std::count_if(trace.emissions.begin(), trace.emissions.end(),
                                                       [](auto& e) { return !e.hit; })));

  // A prompt batch went through all four stages of 4 ms.
  ASSERT_EQ(slices[0].size(), 4u);
  for (int stage = 0; stage < 4; stage++) {
    const Json& slice = slices[0][static_cast<size_t>(stage)];
    EXPECT_EQ(slice["tid"], stage + 1);
    EXPECT_DOUBLE_EQ(slice["ts"], 4000.0 * stage);
    EXPECT_DOUBLE_EQ(slice["dur"], 4000.0);
    EXPECT_EQ(slice["args"]["rows"], 16);
    EXPECT_EQ(slice["args"]["computed"], 16);
    EXPECT_EQ(slice["args"]["fates"], Json({{"prompt", 16}}));
    EXPECT_EQ(slice["args"]["tokens"].size(), 16u);
  }
  std::string kinds;
  for (const Json& arrow : arrows[0]) kinds += arrow["ph"].get<std::string>();
  EXPECT_EQ(kinds, "sttf");

  for (const auto& [batch, events] : arrows) {
    for (const Json& arrow : events) {  // each arrow lies in a slice of its batch
      EXPECT_TRUE(std::any_of(slices[batch].begin(), slices[batch].end(), [&](const Json& slice) {
        return slice["tid"] == arrow["tid"] && slice["ts"] <= arrow["ts"] &&
               arrow["ts"].get<double>() <= slice["ts"].get<double>() + slice["dur"].get<double>();
      }));
    }
  }
}

TEST(ChromeTrace, NamesTheStagesByTheirLayers) {
  const Json parsed = Json::parse(synthetic_trace(2, 4, 2, 1.0).chrome_json());
  std::set<std::string> names;
  for (const Json& event : parsed["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "thread_name") names.insert(event["args"]["name"]);
  }
  EXPECT_EQ(names, (std::set<std::string>{"tokens", "stage 0 (layers 0 to 2)", "stage 1 (layers 3 to 5)"}));
}

TEST(Trace, AnEmptyOneIsWrittenToo) {
  EXPECT_TRUE(Json::accept(Trace().chrome_json()));
  EXPECT_TRUE(Json::accept(data_of(Trace().html())));
}

TEST(Trace, NumbersThatAreNoNumbersDoNotBreakIt) {
  Trace trace = synthetic_trace(2, 4, 2, 1.0);
  const double nan = std::nan(""), infinity = HUGE_VAL;
  trace.batches[4].rows[0].log_path = -infinity;
  trace.batches[4].rows[0].probability = std::nanf("");
  trace.spans[0].begin = nan;
  trace.spans[1].end = infinity;
  trace.emissions[0].time = -infinity;
  EXPECT_TRUE(Json::accept(trace.chrome_json()));
  EXPECT_TRUE(Json::accept(data_of(trace.html())));
}

TEST(TimelinePage, NoTokenCanLeaveTheDataElement) {
  const std::string page = hostile_trace().html(), plain = Trace().html();
  EXPECT_EQ(count(page, "<script"), count(plain, "<script"));
  EXPECT_EQ(count(page, "</script"), count(plain, "</script"));
  EXPECT_EQ(count(page, "<!--"), count(plain, "<!--"));
  const Json data = Json::parse(data_of(page));
  for (const size_t i : {size_t{0}, size_t{1}, size_t{2}, size_t{5}, size_t{12}, size_t{15}}) {
    EXPECT_EQ(data["texts"][data["emissions"]["text"][i].get<size_t>()], kHostile[i]);
  }
}

TEST(TimelinePage, HoldsTheTraceAsColumns) {
  const Trace trace = synthetic_trace(5, 40, 4, 0.9);
  const Json data = Json::parse(data_of(trace.html()));
  const Json& batches = data["batches"];
  ASSERT_EQ(batches["id"].size(), trace.batches.size());
  ASSERT_EQ(batches["first"].size(), trace.batches.size() + 1);
  for (size_t b = 0; b < trace.batches.size(); b++) {
    const size_t first = batches["first"][b], last = batches["first"][b + 1];
    ASSERT_EQ(last - first, trace.batches[b].rows.size());
    for (size_t i = 0; i < last - first; i++) {
      const TraceRow& row = trace.batches[b].rows[i];
      EXPECT_EQ(batches["fate"][first + i], static_cast<int>(row.fate));
      EXPECT_EQ(batches["position"][first + i], row.position);
      EXPECT_EQ(batches["parent"][first + i], row.parent_row);
      EXPECT_NEAR(batches["log_path"][first + i], row.log_path, 5.1e-4);
      EXPECT_EQ(data["texts"][batches["text"][first + i].get<size_t>()], row.text);
    }
  }
  ASSERT_EQ(data["spans"]["stage"].size(), trace.spans.size());
  for (size_t s = 0; s < trace.spans.size(); s++) {
    EXPECT_NEAR(data["spans"]["begin"][s].get<double>(), trace.spans[s].begin * 1e9, 1);
    EXPECT_NEAR(data["spans"]["end"][s].get<double>(), trace.spans[s].end * 1e9, 1);
    EXPECT_EQ(data["spans"]["computed"][s], trace.spans[s].rows_computed);
  }
  EXPECT_EQ(data["header"]["utilisation"].size(), 5u);
  EXPECT_EQ(data["header"]["simulated"], true);
}

TEST(TimelinePage, CountsTimeFromTheFirstEvent) {
  Trace trace;
  const double boot = 1e6;  // a clock that was started eleven days ago
  trace.header.decode_begin = boot + 1;
  trace.header.decode_end = boot + 2;
  trace.batches.push_back({.id = BatchId(0), .submitted = boot});
  trace.spans.push_back({StageId(0), BatchId(0), boot + 1, boot + 2, 0});
  const Json data = Json::parse(data_of(trace.html()));
  EXPECT_EQ(data["batches"]["submitted"][0], 0);
  EXPECT_EQ(data["spans"]["end"][0], 2000000000);
  EXPECT_EQ(data["header"]["decode_begin"], 1000000000);
}

TEST(TimelinePage, AsksTheNetworkForNothing) {
  const std::string page = Trace().html();
  for (const char* what : {"http:", "https:", "src=", "<link", "@import", "fetch(", "innerHTML"})
    EXPECT_EQ(count(page, what), 0u) << what;
}

TEST_F(TraceFile, ItsScriptParses) {
  if (std::system("command -v node >/dev/null 2>&1") != 0) GTEST_SKIP() << "node is not installed";
  const fs::path file = folder_ / "page.js";
  std::ofstream(file) << script(hostile_trace().html(), "<script>\n");
  ASSERT_GT(fs::file_size(file), 10000u);
  EXPECT_EQ(std::system(("node --check '" + file.string() + "'").c_str()), 0);
}

TEST_F(TraceFile, TheNameChoosesTheFormat) {
  ASSERT_TRUE(trace_.write((folder_ / "a.html").string()));
  ASSERT_TRUE(trace_.write((folder_ / "a.json").string()));
  EXPECT_EQ(read(folder_ / "a.html"), trace_.html());
  EXPECT_EQ(read(folder_ / "a.json"), trace_.chrome_json());
  EXPECT_EQ(files(), (std::set<std::string>{"a.html", "a.json"}));
}

TEST_F(TraceFile, ReplacesAnOldOneAndKeepsALink) {
  std::ofstream(folder_ / "old.json") << "old";
  fs::create_symlink("old.json", folder_ / "link.json");
  ASSERT_TRUE(trace_.write((folder_ / "link.json").string()));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.json"));
  EXPECT_EQ(read(folder_ / "old.json"), trace_.chrome_json());
}

TEST_F(TraceFile, AFullDeviceIsAnErrorThatNamesIt) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const Status status = trace_.write("/dev/full");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kRuntime);
  EXPECT_NE(status.error().message.find("/dev/full"), std::string::npos);
  EXPECT_NE(status.error().message.find("No space"), std::string::npos);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(TraceFile, AMissingFolderOrAFolderAsTargetIsAnError) {
  const Status missing = trace_.write((folder_ / "no" / "a.json").string());
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("no/a.json"), std::string::npos);
  EXPECT_FALSE(trace_.write(folder_.string()));
  EXPECT_FALSE(trace_.write(""));
  EXPECT_EQ(files(), std::set<std::string>{});
}

TEST_F(TraceFile, AWriteThatFailsHalfWayLeavesTheOldFileAlone) {
  std::ofstream(folder_ / "a.json") << "old";
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = trace_.write((folder_ / "a.json").string());
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("a.json"), std::string::npos);
  EXPECT_EQ(read(folder_ / "a.json"), "old");
  EXPECT_EQ(files(), std::set<std::string>{"a.json"});
}

}  // namespace
}  // namespace sluice
