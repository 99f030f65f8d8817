// A client that can also misbehave: what it sends is sent as it stands.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice::test {

struct HttpAnswer {
  int status = 0;  // 0: the connection ended without an answer
  std::string head, body;
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
};

class HttpClient {
 public:
  // HOST:PORT, an IPv4 address.
  explicit HttpClient(const std::string& address);
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient();

  void send(const std::string& bytes);
  void end_of_sending();
  // The next answer, whole, without the chunks that it came in.
  HttpAnswer read();
  // Waits until so many bytes have come, or the end.
  void read_at_least(size_t n);
  const std::string& unread() const { return unread_; }  // that has come
  bool ended();                                          // after all that was read; waits for more or the end

 private:
  bool read_some();
  std::string take(size_t n);
  std::string take_line();

  int socket_ = -1;
  std::string unread_;
};

std::string http_request(const std::string& method, const std::string& path, const std::string& body = "",
                         const std::string& headers = "");
// By a connection of its own.
HttpAnswer ask(const std::string& address, const std::string& method, const std::string& path,
               const std::string& body = "", const std::string& headers = "");
HttpAnswer post(const std::string& address, const std::string& path, const nlohmann::json& body);

// The events of a stream; the last one is null if it says that all is said. Those that have a name have it as type too.
std::vector<nlohmann::json> events_of(const std::string& body);

}  // namespace sluice::test
