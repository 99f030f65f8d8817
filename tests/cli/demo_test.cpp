// `sluice demo`: stored schedules, in the terminal and as a page.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

// The data of the timelines in the page.
std::vector<json> runs_of(std::string page) {
  page = replaced(replaced(replaced(page, "&quot;", "\""), "&lt;", "<"), "&amp;", "&");
  const std::string begin = "<script type=\"application/json\" id=\"trace\">";
  std::vector<json> runs;
  for (size_t at = page.find(begin); at != page.npos; at = page.find(begin, at)) {
    at += begin.size();
    runs.push_back(json::parse(page.substr(at, page.find("</script>", at) - at), nullptr, false));
  }
  return runs;
}

std::string text_of(const json& run) {
  std::string text;
  for (const auto& index : run["emissions"]["text"]) text += run["texts"][index.get<size_t>()].get<std::string>();
  return text;
}

double rate_of(const json& run) {
  const double seconds =
      (run["header"]["decode_end"].get<double>() - run["header"]["decode_begin"].get<double>()) / 1e9;
  return static_cast<double>(run["emissions"]["time"].size() - 1) / seconds;
}

TEST(Demo, ShowsTheSameTextByBothWaysAndStatesWhatItGains) {
  const std::string page = temp_path("demo.html");
  const Ran ran = run_program({"demo", "--no-open", "--output", page});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const std::vector<json> runs = runs_of(read(page));
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0]["header"]["method"], "ar");
  EXPECT_EQ(runs[1]["header"]["method"], "surge");
  EXPECT_EQ(runs[0]["header"]["stages"], 3);
  EXPECT_EQ(runs[0]["header"]["clock"], runs[1]["header"]["clock"]);
  EXPECT_EQ(text_of(runs[0]), text_of(runs[1]));
  char rate[32], ratio[32];
  std::snprintf(rate, sizeof rate, "%.1f tokens", rate_of(runs[1]));
  std::snprintf(ratio, sizeof ratio, "%.2f ", rate_of(runs[1]) / rate_of(runs[0]));
  for (const std::string& where : {ran.out, read(page)}) {
    EXPECT_NE(where.find(rate), where.npos) << rate;
    EXPECT_NE(where.find(ratio), where.npos) << ratio;
    EXPECT_NE(where.find("imulated"), where.npos);
  }
  EXPECT_NE(ran.out.find(page), ran.out.npos);
}

TEST(Demo, DrawsEveryStageOfBothRuns) {
  const Ran ran = run_program({"demo", "--no-open", "--output", temp_path("demo.html")});
  // Plain pipelining: one stage after the other, a pass each.
  for (const char* line : {" stage 0  ███······███", " stage 1  ···███······███", " stage 2  ······███······███"})
    EXPECT_NE(ran.out.find(line), ran.out.npos) << line;
  size_t lines = 0;
  for (size_t at = ran.out.find(" stage "); at != ran.out.npos; at = ran.out.find(" stage ", at + 1)) ++lines;
  EXPECT_EQ(lines, 6u);
}

// A browser that writes down what it is shown.
class Browser : public testing::Test {
 protected:
  Browser() : path_(std::getenv("PATH")) {
    fs::create_directories(folder_);
    std::ofstream(folder_ + "/xdg-open") << "#!/bin/sh\necho \"$1\" > " << shown_ << ".new && mv " << shown_ << ".new "
                                         << shown_ << "\n";
    fs::permissions(folder_ + "/xdg-open", fs::perms::owner_all);
    ::setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
    ::setenv("DISPLAY", ":0", 1);
  }
  ~Browser() override {
    ::setenv("PATH", path_.c_str(), 1);
    ::unsetenv("DISPLAY");
  }
  std::string waits_for_page(int tenths) const {
    for (int i = 0; i < tenths && !fs::exists(shown_); ++i) ::usleep(100'000);
    return read(shown_);
  }

  const std::string path_, folder_ = temp_path("browser"), shown_ = temp_path("shown");
};

TEST_F(Browser, IsShownThePageWhereThereIsADisplay) {
  const std::string page = temp_path("demo.html");
  const Ran ran = run_program({"demo", "--output", page});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(waits_for_page(300), page + "\n");
  EXPECT_NE(ran.out.find("Opening"), ran.out.npos);
}

TEST_F(Browser, IsLeftAloneIfAskedToOrWithoutADisplay) {
  fs::remove(shown_);
  const std::string page = temp_path("demo.html");
  EXPECT_NE(run_program({"demo", "--output", page, "--no-open"}).out.find("open in a browser: "), std::string::npos);
  ::unsetenv("DISPLAY");
  ::unsetenv("WAYLAND_DISPLAY");
  EXPECT_NE(run_program({"demo", "--output", page}).out.find("open in a browser: "), std::string::npos);
  EXPECT_EQ(waits_for_page(3), "");
}

TEST(Demo, SaysWhatIsWrongWithThePlaceOfItsPage) {
  EXPECT_TRUE(fails(run_program({"demo", "--output", "no/such/folder/d.html"}), 2, {"--output", "no/such/folder"}));
  EXPECT_TRUE(fails(run_program({"demo", "--output", "/dev/full"}), 1, {"--output /dev/full", "space"}));
}

}  // namespace
}  // namespace sluice::test
