// HTTP/1.1 for many clients by one thread: requests in, replies and streams of events out, within limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice {

struct HttpRequest {
  std::string method, path;        // without what follows a question mark
  std::string authorization;       // the header, empty without one
  std::string api_key = {};        // likewise x-api-key
  std::string origin = {};         // likewise: the page that a browser asks for
  std::string host = {};           // likewise: the name by which this machine was asked
  std::string last_event_id = {};  // likewise Last-Event-ID
  std::string body = {};
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string type = "application/json";
};

// Where the reply to one request goes. Thread safety: any thread. What is said after the client has gone is dropped.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // The whole reply. Once, and instead of a stream.
  virtual void reply(HttpReply reply) = 0;
  // Begins a stream of events (text/event-stream), or goes on with it.
  virtual void stream(std::string events) = 0;
  virtual void end_stream() = 0;
  // Bytes of a stream that the client's system has not taken yet, as far as they are known.
  virtual size_t untaken() const { return 0; }
  // Has `gone` called, by the server's thread, when the client goes away before all is said; at once if it has.
  virtual void on_gone(std::function<void()> gone) = 0;
  // Whether it has, so that nobody hears what is said.
  virtual bool gone() const = 0;
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // a name or an address
  uint16_t port = 0;               // 0: one that the system chooses
  bool beyond_loopback = false;    // else the host must be this machine
  size_t connections = 1000;       // at a time
  // For a client to send a request, or the next one; and to take what is sent to it.
  double idle_seconds = 60;
};

class HttpServer {
 public:
  struct Handler {
    // By the head of a request, before its body is read: what it is refused by.
    std::function<std::optional<HttpReply>(const HttpRequest&)> screen;
    // Whole ones; the reply may come later. Of the server's thread, so it must not wait.
    std::function<void(HttpRequest, std::shared_ptr<Exchange>)> handle;
    // The body of a reply that the server itself gives, by status and what is wrong. path: empty if none has come.
    std::function<std::string(const std::string& path, int status, const std::string& message)> error;
  };
  // Errors name --host or --port: kInput for a host beyond this machine or one that there is not, else kRuntime.
  static Result<std::unique_ptr<HttpServer>> open(const HttpOptions& options, Handler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  std::string address() const;  // HOST:PORT, with the port that was chosen
  // Requests that have come and whose reply has not gone, all of it. Thread safety: any thread.
  size_t exchanges() const;
  // Closes all connections; nothing of the handler is called any more. Exchanges may still be used.
  void stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
