// The options of methods in one table: how each is called, what it may be, and who reads it. The command line, files of
// settings and whoever else takes options from outside go through it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "method/options.h"

namespace sluice {

// What else must be so for an option to be read: another one is given, has a value, or is absent.
struct Condition {
  const char* option = nullptr;  // null: nothing else
  const char* value = nullptr;   // null: whatever it is
  bool given = true;
};

struct Readers {
  std::vector<std::string> methods;
  Condition condition = {};
  Condition also = {};
};

// Numbers lie within [low, high]; "auto" stands for `automatic`, if there is such a thing.
struct WholeNumber {
  int32_t MethodOptions::*field;
  int32_t low, high;
  std::optional<int32_t> automatic = {};
};
struct RealNumber {
  double MethodOptions::*field;
  double low, high;
  std::optional<double> automatic = {};
};
struct WholeNumbers {
  std::vector<int32_t> MethodOptions::*field;
  int32_t low, high;
};
struct FallbackName {
  Fallback MethodOptions::*field;
};
struct Flag {
  bool MethodOptions::*field;
};

struct MethodOption {
  const char* flag;  // on the command line
  std::variant<WholeNumber, RealNumber, WholeNumbers, FallbackName, Flag> value;
  std::vector<Readers> readers;
  const char* help;

  std::string key() const;  // in JSON: tree_nodes for --tree-nodes
  nlohmann::json in(const MethodOptions& options) const;
};
// In the order in which they are shown. An option that is off unless it is given has a default outside its range.
std::span<const MethodOption> method_option_table();

// Whether the values are in their ranges, and a static tree fits into a batch. Errors (kInput) name the option.
Status check(const MethodOptions& options);

// What was given for an option, by its flag; none if it wasn't.
using Given = std::function<std::optional<std::string>(const char* flag)>;

// An error (kInput) for a setting that was given and that none of these methods reads, naming those that do: an option
// of a method, or one of what only guesses make sense for.
Status check_settings_are_read(const Given& given, const std::vector<std::string>& methods);

}  // namespace sluice
