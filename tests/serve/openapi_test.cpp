// docs/openapi.json says what the server has, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "serve/http_client.h"
#include "serve/served.h"

namespace sluice::test {
namespace {

using nlohmann::json;

json documented() {
  std::ifstream file(SLUICE_SOURCE_DIR "/docs/openapi.json");
  return json::parse(file);
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

TEST(ServeOpenApi, WhatIsDocumentedIsThere) {
  const auto server = serve();
  const std::string model = served_session().model().hparams().name;
  const json paths = documented()["paths"];
  for (const auto& [path, methods] : paths.items())
    for (const auto& [method, operation] : methods.items()) {
      std::string asked = path;
      if (const size_t at = asked.find("{name}"); at != asked.npos) asked.replace(at, 6, model);
      const bool has_body = operation.contains("requestBody");
      const bool lacks = has_body || (operation.contains("parameters") && operation["parameters"][0]["in"] == "header");
      const HttpAnswer answer = ask(server->address(), upper(method), asked, has_body ? "{}" : "");
      EXPECT_EQ(answer.status, lacks ? 400 : 200) << path << ' ' << answer.body;
      EXPECT_TRUE(operation["responses"].contains(std::to_string(answer.status))) << path;
      const HttpAnswer other = ask(server->address(), "DELETE", asked);
      EXPECT_EQ(other.status, 405) << path;
      EXPECT_NE(other.head.find("Allow: " + upper(method)), std::string::npos) << path << other.head;
    }
}

TEST(ServeOpenApi, WhatIsThereIsDocumented) {
  const auto server = serve();
  const json paths = documented()["paths"];
  const std::set<std::string> pages = {"/", "/timeline", "/live"};  // for people
  // "… there are /v1/chat/completions, /v1/completions, …"
  std::istringstream words(ask(server->address(), "GET", "/nowhere").json()["error"]["message"].get<std::string>());
  size_t n = 0;
  for (std::string word; words >> word;) {
    if (word.ends_with(',')) word.pop_back();
    if (!word.starts_with('/') || word == "/nowhere" || pages.contains(word)) continue;
    ++n;
    EXPECT_TRUE(paths.contains(word)) << word;
  }
  EXPECT_GT(n, 10u);
}

}  // namespace
}  // namespace sluice::test
