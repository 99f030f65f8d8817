// libFuzzer target: what clients send to the server, as bytes of a connection. Each request is answered, or is an error
// of one line, and the connection ends; never a crash, nor an exception.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "serve/http_connection.h"
#include "serve/json_body.h"
#include "serve/json_values.h"
#include "serve/message_reader.h"
#include "serve/messages_body.h"
#include "serve/parameter_reader.h"
#include "serve/responses_body.h"

namespace {

using namespace sluice;
using json = nlohmann::ordered_json;

void check(bool right) {
  if (!right) std::abort();
}

std::string text_of(const ApiError& error) {
  check(error.status >= 400 && error.status < 500 && error.message.find('\n') == std::string::npos);
  return error.to_json().dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Those of which the input is read without a model, and the others.
template <class ReadInput, class ReadParameter>
ApiResult<Asked> read(Api api, const json& body, ReadInput read_input, ReadParameter read_parameter) {
  Asked asked{.api = api};
  AnswerRequest request;
  SLUICE_API_TRY_STATUS(read_input(body, request));
  for (const auto& [name, value] : body.items()) SLUICE_API_TRY_STATUS(read_parameter(name, value, asked));
  return asked;
}

// As far as a request is read without a model.
ApiResult<Asked> read(const std::string& path, const std::string& text) {
  SLUICE_API_TRY(const json body, parse_body(text));
  if (path == "/v1/messages") return read(Api::kMessages, body, read_messages_input, read_messages_parameter);
  if (path == "/v1/responses") {
    SLUICE_API_TRY(Asked asked, read(Api::kResponses, body, read_responses_input, read_responses_parameter));
    asked.settings = responses_settings(body, asked.spec.sampling);
    return asked;
  }
  Asked asked{.api = path.size() % 2 == 0 ? Api::kChat : Api::kCompletions};
  AnswerRequest request;
  if (body.contains("messages")) {
    SLUICE_API_TRY(request.conversation.messages, read_messages(body["messages"], "messages"));
  }
  SLUICE_API_TRY_STATUS(read_tools(body, request));
  if (body.contains("prompt") && body["prompt"].is_array()) {
    SLUICE_API_TRY(asked.spec.prompt, read_tokens(body["prompt"], "prompt", 1000));
  }
  for (const auto& [name, value] : body.items())
    if (name != "messages" && name != "prompt" && name != "tools" && name != "tool_choice")
      SLUICE_API_TRY_STATUS(read_parameter(name, value, asked));
  SLUICE_API_TRY_STATUS(check_parameters(asked));
  return asked;
}

HttpServer::Handler handler() {
  return {.screen = [](const HttpRequest& request) -> std::optional<HttpReply> {
            if (request.path != "/refused") return std::nullopt;
            return HttpReply{.status = 404, .body = "{}"};
          },
          .handle =
              [](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
                const auto asked = read(request.path, request.body);
                exchange->on_gone([] {});
                if (!asked) return exchange->reply({.status = asked.error().status, .body = text_of(asked.error())});
                if (!asked->stream) return exchange->reply({.status = 200, .body = "{}"});
                exchange->stream("data: {}\n\n");
                exchange->end_stream();
              },
          .error = [](const std::string&, int, const std::string& message) { return message; }};
}

}  // namespace

// The first byte says in which pieces the others come.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > 60'000) return 0;  // a socket holds so many at a time
  boost::asio::io_context io(1);
  int ends[2];
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  bool ended = false;
  HttpConnection::Shared shared{.handler = handler(),
                                .idle = std::chrono::hours(1),
                                .ended = [&](const std::shared_ptr<HttpConnection>&) { ended = true; }};
  const auto connection =
      std::make_shared<HttpConnection>(boost::asio::ip::tcp::socket(io, boost::asio::ip::tcp::v4(), ends[0]), shared);
  connection->start();
  const size_t piece = data[0] == 0 ? size : data[0];
  char replies[65536];
  for (size_t at = 1; at < size && !ended; at += piece) {
    static_cast<void>(!::send(ends[1], data + at, std::min(piece, size - at), MSG_NOSIGNAL));
    io.poll();
    while (::recv(ends[1], replies, sizeof replies, 0) > 0) {
    }
  }
  ::shutdown(ends[1], SHUT_WR);
  int turns = 0;
  while (!ended) {
    check(++turns < 100'000);
    io.poll();
    while (::recv(ends[1], replies, sizeof replies, 0) > 0) {
    }
  }
  check(shared.body_bytes == 0 && shared.exchanges == 0);
  ::close(ends[1]);
  return 0;
}
