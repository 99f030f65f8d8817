#include "serve/json_body.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "serve/policy.h"

namespace sluice {

using json = nlohmann::ordered_json;

namespace {

// Levels of arrays and objects; also of what is no JSON, since parsers count on the stack what they meet.
int depth(std::string_view text) {
  int level = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++level);
    } else if (c == ']' || c == '}') {
      --level;
    }
  }
  return deepest;
}

// Builds what a text holds. The library's own builder looks through all members of an object for each that comes, so an
// object of very many would hold up everybody.
class Builder final : public nlohmann::json_sax<json> {
 public:
  json take() { return std::move(root_); }
  const std::string& trouble() const { return trouble_; }  // why it was broken off

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // there is none in a text
  bool start_array(size_t) override { return open(json::array()); }
  bool start_object(size_t) override { return open(json::object()); }
  bool end_array() override { return close(); }
  bool end_object() override { return close(); }

  // One that is there already is given another value.
  bool key(string_t& name) override {
    Level& level = levels_.back();
    json::object_t::Container& members = level.container->get_ref<json::object_t&>();
    const auto [at, fresh] = level.places.try_emplace(name, members.size());
    if (fresh) members.emplace_back(std::move(name), nullptr);
    level.member = &members[at->second].second;
    if (members.size() <= policy::kMostMembers) return true;
    trouble_ = "has an object of too many members: there may be " + std::to_string(policy::kMostMembers);
    return false;
  }

  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    const auto* where = dynamic_cast<const json::parse_error*>(&error);
    trouble_ = where != nullptr ? "is no JSON, see byte " + std::to_string(where->byte)
                                : "holds a number that is out of range";
    return false;
  }

 private:
  struct Level {
    json* container;
    json* member = nullptr;                               // of an object, the one that comes
    std::unordered_map<std::string, size_t> places = {};  // of its members
  };

  json& place() {
    if (levels_.empty()) return root_;
    const Level& level = levels_.back();
    if (level.container->is_object()) return *level.member;
    level.container->push_back(nullptr);
    return level.container->back();
  }
  bool put(json value) {
    place() = std::move(value);
    return true;
  }
  bool open(json container) {
    json& here = place();
    here = std::move(container);
    levels_.push_back({.container = &here});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  json root_;
  std::vector<Level> levels_;
  std::string trouble_;
};

tl::unexpected<ApiError> bad_body(const std::string& message) {
  return tl::unexpected<ApiError>(
      {.status = 400, .message = "the body " + message, .param = "", .code = "invalid_json"});
}

}  // namespace

ApiResult<json> parse_body(std::string_view body) {
  if (body.empty()) return bad_body("is empty: it must be a JSON object");
  if (depth(body) > policy::kDeepestBody)
    return bad_body("nests too deeply: there may be " + std::to_string(policy::kDeepestBody) + " levels at most");
  Builder builder;
  if (!json::sax_parse(body, &builder)) return bad_body(builder.trouble());
  json value = builder.take();
  if (!value.is_object()) return bad_body(std::string("must be a JSON object, not ") + value.type_name());
  return value;
}

}  // namespace sluice
