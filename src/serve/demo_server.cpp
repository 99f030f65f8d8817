#include "serve/demo_server.h"

#include "serve/answer_form.h"
#include "serve/api_error.h"
#include "serve/live_page.h"

namespace sluice {

namespace {

HttpReply refusal(int status, const std::string& message) {
  const ApiError error{.status = status, .message = message, .param = "", .code = ""};
  return {.status = status, .body = text_of(error.to_json())};
}

HttpReply reply_to(const HttpRequest& request) {
  if (request.method != "GET")
    return refusal(405, "this is a demonstration without a model: start sluice serve without --demo to ask it");
  if (request.path == "/") return demo_page_reply();
  if (request.path == "/timeline") return timeline_reply();
  if (request.path == "/health") return HttpReply{.status = 200, .body = R"({"status":"ok"})"};
  return refusal(404, "this is a demonstration without a model: there are /, /timeline, /health");
}

}  // namespace

Result<std::unique_ptr<HttpServer>> open_demo_server(const HttpOptions& options) {
  return HttpServer::open(
      options, {.screen = [](const HttpRequest& request) -> std::optional<HttpReply> {
                  if (request.method != "GET") return reply_to(request);  // before its body is read
                  return std::nullopt;
                },
                .handle = [](const HttpRequest& request,
                             const std::shared_ptr<Exchange>& exchange) { exchange->reply(reply_to(request)); },
                .error = [](const std::string&, int status,
                            const std::string& message) { return refusal(status, message).body; }});
}

}  // namespace sluice
