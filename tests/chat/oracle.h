// Jinja itself as the oracle: oracle.py, run by a Python that has jinja2.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"

namespace sluice::test {

struct OracleCase {
  std::string template_text;
  nlohmann::ordered_json variables;  // an object
};
struct OracleAnswer {
  std::optional<std::string> text;  // none: Jinja fails
  std::string error;
};

inline constexpr std::time_t kNow = 1'700'000'000;

// One answer a case; nothing when there is no Python with jinja2.
std::optional<std::vector<OracleAnswer>> ask_jinja(const std::vector<OracleCase>& cases);

// What ours says of the same case.
Result<std::string> render_ours(const OracleCase& c);

std::string read_file(const std::string& path);

}  // namespace sluice::test
