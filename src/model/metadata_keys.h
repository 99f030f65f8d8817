// The metadata of one architecture in a file, "<architecture>.<name>": typed, bounded, with errors that name the key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/gguf.h"

namespace sluice {

// Errors have no file name in them. The header must outlive this.
class MetadataKeys {
 public:
  // refused: takes what must_be() says, which is then no error.
  MetadataKeys(const gguf::Header& header, std::string architecture, std::vector<std::string>* refused = nullptr)
      : header_(header), architecture_(std::move(architecture)), refused_(refused) {}

  std::string full(const std::string& name) const { return architecture_ + "." + name; }
  const std::string& architecture() const { return architecture_; }
  bool has(const std::string& name) const { return header_.find(full(name)) != nullptr; }

  tl::unexpected<Error> wrong(const std::string& name, const std::string& why) const;

  // Whether it is there and says anything but 0.
  bool is_counted(const std::string& name) const { return has(name) && !is(name, 0); }
  // A count in [1, limit], or what stands for it if the key is not there.
  Result<int32_t> count(const std::string& name, uint32_t limit, std::optional<int32_t> otherwise = {}) const;
  // A number in [least, limit] that must be there.
  Result<int32_t> number_in(const std::string& name, uint32_t least, uint32_t limit) const;
  // The same as count() for what may be given layer by layer: [n_layers].
  Result<std::vector<int32_t>> layer_counts(const std::string& name, uint32_t limit, int32_t n_layers,
                                            std::optional<int32_t> otherwise = {}) const;
  // The same where layers that differ are not computed.
  Result<int32_t> layer_count(const std::string& name, uint32_t limit, int32_t n_layers,
                              std::optional<int32_t> otherwise = {}) const;
  // A flag of each layer, or the period of which only the last layer's is not set (0: all are), if the key is not there
  // this one.
  Result<std::vector<uint8_t>> layer_flags(const std::string& name, int32_t n_layers, int32_t period) const;
  // A finite number.
  Result<float> number(const std::string& name, std::optional<float> otherwise = {}) const;
  Result<std::string> text(const std::string& name, std::optional<std::string> otherwise = {}) const;
  // Whether a text that must be there is the second of two, the only ones possible.
  Result<bool> choice(const std::string& name, const char* first, const char* second) const;
  Result<bool> flag(const std::string& name, std::optional<bool> otherwise = {}) const;
  // An array of `count` i32 (any number of them: none given), each in [least, limit].
  Result<std::vector<int32_t>> numbers(const std::string& name, std::optional<size_t> count, int32_t least,
                                       int32_t limit) const;
  // Empty if there is none.
  Result<std::vector<std::string>> texts(const std::string& name) const;

  // A number that other engines leave alone in this family, or a switch: anything but `plain` would change the tokens.
  Status must_be(const std::string& name, float plain, const char* what) const;

 private:
  // Whether the value that is there is this number, or this switch.
  bool is(const std::string& name, float plain) const;

  const gguf::Header& header_;
  std::string architecture_;
  std::vector<std::string>* refused_;
};

}  // namespace sluice
