// Results as JSON, one object a line, written as soon as they are known: a run that is cut short keeps what it had.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <type_traits>

namespace gpu {

class Record {
 public:
  explicit Record(const std::string& what) { set("what", what); }

  Record& set(const std::string& key, const std::string& value) { return raw(key, '"' + value + '"'); }
  Record& set(const std::string& key, const char* value) { return set(key, std::string(value)); }
  Record& set(const std::string& key, bool value) { return raw(key, value ? "true" : "false"); }
  template <class T>
  requires std::is_arithmetic_v<T> Record& set(const std::string& key, T value) { return raw(key, number(value)); }
  template <class T>
  Record& set(const std::string& key, std::span<const T> values) {
    std::string list = "[";
    for (size_t i = 0; i < values.size(); ++i) list += (i > 0 ? ", " : "") + number(values[i]);
    return raw(key, list + "]");
  }
  std::string line() const { return "{" + text_ + "}"; }

 private:
  template <class T>
  static std::string number(T value) {
    if constexpr (std::is_integral_v<T>) return std::to_string(value);
    char out[32];
    std::snprintf(out, sizeof out, "%.6g", static_cast<double>(value));
    return out;
  }
  Record& raw(const std::string& key, const std::string& value) {
    text_ += (text_.empty() ? "\"" : ", \"") + key + "\": " + value;
    return *this;
  }
  std::string text_;
};

// Where results go: to the terminal, and to a file if one is named.
class Results {
 public:
  // `graphs_off`: CUDA graphs are off in this process, which every record says.
  Results(std::FILE* file, bool graphs_off) : file_(file), graphs_off_(graphs_off) {}
  void write(Record record) {
    if (graphs_off_) record.set("cuda_graphs", false);
    std::printf("%s\n", record.line().c_str());
    std::fflush(stdout);
    if (file_ == nullptr) return;
    std::fprintf(file_, "%s\n", record.line().c_str());
    std::fflush(file_);
  }

 private:
  std::FILE* file_;
  bool graphs_off_;
};

}  // namespace gpu
