#include "transport/address.h"

#include <charconv>
#include <optional>

namespace sluice {

namespace {

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_name(const std::string& text) {
  if (text.empty() || text.size() > 255 || text.starts_with('-')) return false;  // which would be an option of ssh
  for (const char c : text)
    if (c <= ' ' || c > '~' || c == '/' || c == '[' || c == ']' || c == '@') return false;
  return text.find_first_not_of("0123456789") !=
         std::string::npos;  // a port alone, which resolvers take for an address
}

}  // namespace

std::string HostAddress::text() const {
  if (is_rank()) return std::string(kRank) + std::to_string(rank);
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string HostAddress::for_people() const { return name.empty() ? text() : name + " (" + text() + ")"; }

Result<HostAddress> HostAddress::parse(const std::string& text) {
  HostAddress address;
  if (text.starts_with(kRank))
    if (const auto rank = number_of<int32_t>(std::string_view(text).substr(kRank.size())); rank && *rank >= 0)
      return of_rank(*rank);
  const bool bracketed = text.starts_with('[');
  const size_t bracket = text.find(']');
  size_t colon = text.rfind(':');
  if (bracketed) {
    if (bracket == std::string::npos)
      colon = 0;
    else if (bracket + 1 == text.size())
      colon = std::string::npos;
    else if (colon != bracket + 1)
      colon = 0;
    address.host = bracket == std::string::npos ? "" : text.substr(1, bracket - 1);
  } else {
    address.host = text.substr(0, colon);
  }
  const auto port = colon == std::string::npos ? kPort : number_of<uint16_t>(std::string_view(text).substr(colon + 1));
  const bool plain = bracketed || address.host.find(':') == std::string::npos;
  if (!is_name(address.host) || !plain || !port)
    return input_error("'" + text + "' is no host: give HOST:PORT, as in 192.168.1.7:7001 or [fe80::1]:7001");
  address.port = *port;
  return address;
}

Result<std::vector<HostAddress>> parse_hosts(const std::string& text) {
  std::vector<HostAddress> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    SLUICE_TRY(auto host, HostAddress::parse(text.substr(begin, end - begin)));
    if (host.is_rank()) return input_error("'" + host.text() + "' is no host: ranks are those that mpirun starts");
    hosts.push_back(std::move(host));
    begin = end + 1;
  }
  return hosts;
}

}  // namespace sluice
