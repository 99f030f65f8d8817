#include "serve/live_page.h"

#include <openssl/evp.h>

#include <array>
#include <string_view>

#include "base/result.h"
#include "engine/timeline_page.h"

namespace sluice {

extern const std::string_view kLiveMarkup;  // page/page.html
extern const std::string_view kLiveStyle;   // page/page.css
extern const std::string_view kLiveScript;  // page/*.js
extern const std::string_view kLiveDemo;    // page/demo.json

namespace {

// How a content security policy names a text that may stand in a page.
std::string source_of(std::string_view text) {
  std::array<unsigned char, 32> digest{};
  std::array<unsigned char, 45> base64{};
  EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  EVP_EncodeBlock(base64.data(), digest.data(), static_cast<int>(digest.size()));
  return std::string("'sha256-") + reinterpret_cast<const char*>(base64.data()) + "'";
}

// What stands in the last element that begins so.
std::string_view element(std::string_view page, std::string_view begin, std::string_view end) {
  const size_t at = page.rfind(begin);
  SLUICE_CHECK(at != page.npos, "the page has the element");
  page.remove_prefix(at + begin.size());
  return page.substr(0, page.find(end));
}

// The timeline that the page opens has the page's policy.
std::string policy_of(std::string_view script, std::string_view style) {
  const std::string_view timeline = timeline_template();
  return "default-src 'none'; script-src " + source_of(script) + " " +
         source_of(element(timeline, "<script>", "</script>")) + "; style-src " + source_of(style) + " " +
         source_of(element(timeline, "<style>", "</style>")) +
         "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
}

std::string with(std::string_view page, std::string_view marker, std::string_view text) {
  const size_t at = page.find(marker);
  SLUICE_CHECK(at != page.npos, "the page has a place for it");
  return std::string(page.substr(0, at)).append(text).append(page.substr(at + marker.size()));
}

HttpReply reply_with(std::string body, const char* type) {
  return {.status = 200,
          .body = std::move(body),
          .headers = {{"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}},
          .type = type};
}

// runs: JSON without a `<`; empty: none.
HttpReply page_with(std::string_view runs) {
  static const std::string policy = policy_of(kLiveScript, kLiveStyle);
  const std::string page = with(with(kLiveMarkup, "@STYLE@", kLiveStyle), "@DEMO@", runs);
  HttpReply reply = reply_with(with(page, "@SCRIPT@", kLiveScript), "text/html; charset=utf-8");
  reply.headers.emplace_back("Content-Security-Policy", policy);
  return reply;
}

}  // namespace

HttpReply page_reply() {
  static const HttpReply reply = page_with("");
  return reply;
}

HttpReply demo_page_reply() {
  static const HttpReply reply = page_with(kLiveDemo);
  return reply;
}

HttpReply timeline_reply() { return reply_with(std::string(timeline_template()), "text/plain; charset=utf-8"); }

}  // namespace sluice
