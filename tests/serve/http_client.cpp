#include "serve/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace sluice::test {

HttpClient::HttpClient(const std::string& address) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
    throw std::runtime_error("cannot connect to " + address);
}

HttpClient::~HttpClient() { ::close(socket_); }

void HttpClient::send(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return;  // the server has had enough
    at += static_cast<size_t>(n);
  }
}

void HttpClient::end_of_sending() { ::shutdown(socket_, SHUT_WR); }

bool HttpClient::read_some() {
  char buffer[65536];
  const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
  if (n > 0) unread_.append(buffer, static_cast<size_t>(n));
  return n > 0;
}

std::string HttpClient::take(size_t n) {
  while (unread_.size() < n && read_some()) {
  }
  std::string taken = unread_.substr(0, n);
  unread_.erase(0, n);
  return taken;
}

std::string HttpClient::take_line() {
  while (unread_.find("\r\n") == unread_.npos && read_some()) {
  }
  const std::string line = take(std::min(unread_.find("\r\n"), unread_.size()));
  take(std::min<size_t>(2, unread_.size()));
  return line;
}

void HttpClient::read_at_least(size_t n) {
  while (unread_.size() < n && read_some()) {
  }
}

bool HttpClient::ended() { return unread_.empty() && !read_some(); }

HttpAnswer HttpClient::read() {
  HttpAnswer answer;
  const std::string first = take_line();
  if (!first.starts_with("HTTP/1.") || first.size() < 12) return answer;
  answer.status = std::stoi(first.substr(9, 3));
  size_t length = 0;
  bool chunked = false, known = answer.status == 100;
  for (std::string line = take_line(); !line.empty(); line = take_line()) {
    answer.head += line + "\n";
    chunked = chunked || line == "Transfer-Encoding: chunked";
    if (line.starts_with("Content-Length: ")) {
      length = std::stoul(line.substr(16));
      known = true;
    }
  }
  if (!chunked) {
    answer.body = take(known ? length : std::string::npos);
    return answer;
  }
  for (;;) {
    const std::string size = take_line();
    if (size.empty()) return answer;
    const std::string chunk = take(std::stoul(size, nullptr, 16));
    take_line();
    if (chunk.empty()) return answer;
    answer.body += chunk;
  }
}

std::string http_request(const std::string& method, const std::string& path, const std::string& body,
                         const std::string& headers) {
  return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
         (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" + body;
}

HttpAnswer ask(const std::string& address, const std::string& method, const std::string& path, const std::string& body,
               const std::string& headers) {
  HttpClient client(address);
  client.send(http_request(method, path, body, headers));
  return client.read();
}

HttpAnswer post(const std::string& address, const std::string& path, const nlohmann::json& body) {
  return ask(address, "POST", path, body.dump());
}

std::vector<nlohmann::json> events_of(const std::string& body) {
  std::vector<nlohmann::json> events;
  for (size_t at = 0, end; (end = body.find("\n\n", at)) != body.npos; at = end + 2) {
    std::string event = body.substr(at, end - at), name;
    if (event.starts_with("event: ")) {
      name = event.substr(7, event.find('\n') - 7);
      event.erase(0, event.find('\n') + 1);
    }
    if (!event.starts_with("data: ")) throw std::runtime_error("no event: " + event);
    events.push_back(event == "data: [DONE]" ? nlohmann::json() : nlohmann::json::parse(event.substr(6)));
    if (!name.empty() && events.back()["type"] != name) throw std::runtime_error("another type than " + name + event);
  }
  return events;
}

}  // namespace sluice::test
