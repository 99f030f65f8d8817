#include "model/metadata_keys.h"

#include <algorithm>
#include <cmath>

#include "model/metadata_text.h"

namespace sluice {

tl::unexpected<Error> MetadataKeys::wrong(const std::string& name, const std::string& why) const {
  return input_error("metadata key '" + full(name) + "' " + why);
}

Result<int32_t> MetadataKeys::number_in(const std::string& name, uint32_t least, uint32_t limit) const {
  SLUICE_TRY(const auto value, header_.optional_u32(full(name)));
  if (!value) return wrong(name, "is missing");
  if (*value < least || *value > limit)
    return wrong(name, "is " + std::to_string(*value) + "; it should be from " + std::to_string(least) + " to " +
                           std::to_string(limit));
  return static_cast<int32_t>(*value);
}

Result<int32_t> MetadataKeys::count(const std::string& name, uint32_t limit, std::optional<int32_t> otherwise) const {
  if (otherwise && !has(name)) return *otherwise;
  return number_in(name, 1, limit);
}

Result<std::vector<int32_t>> MetadataKeys::layer_counts(const std::string& name, uint32_t limit, int32_t n_layers,
                                                        std::optional<int32_t> otherwise) const {
  const gguf::Value* value = header_.find(full(name));
  std::vector<int32_t> counts(static_cast<size_t>(n_layers));
  if (value == nullptr || !value->is_array) {
    SLUICE_TRY(const int32_t of_all, count(name, limit, otherwise));
    std::ranges::fill(counts, of_all);
    return counts;
  }
  if (value->type != gguf::Type::kUint32 && value->type != gguf::Type::kInt32)
    return wrong(name, "should be a u32 or an array of them");
  if (value->count == 0 || value->count != counts.size()) return wrong(name, "should have one number a layer");
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto one = header_.scalar<uint32_t>(*value, i);
    if (one < 1 || one > limit)
      return wrong(name, "is " + std::to_string(one) + "; it should be from 1 to " + std::to_string(limit));
    counts[i] = static_cast<int32_t>(one);
  }
  return counts;
}

Result<int32_t> MetadataKeys::layer_count(const std::string& name, uint32_t limit, int32_t n_layers,
                                          std::optional<int32_t> otherwise) const {
  SLUICE_TRY(const auto counts, layer_counts(name, limit, n_layers, otherwise));
  if (counts.empty()) return count(name, limit, otherwise);
  if (std::ranges::count(counts, counts.front()) != std::ssize(counts))
    return wrong(name, "differs from layer to layer");
  return counts.front();
}

Result<std::vector<uint8_t>> MetadataKeys::layer_flags(const std::string& name, int32_t n_layers,
                                                       int32_t period) const {
  std::vector<uint8_t> flags(static_cast<size_t>(n_layers));
  const gguf::Value* value = header_.find(full(name));
  if (value != nullptr && value->is_array) {
    if (value->type != gguf::Type::kBool && value->type != gguf::Type::kUint32 && value->type != gguf::Type::kInt32)
      return wrong(name, "should be a u32 or an array of bools");
    if (value->count < flags.size()) return wrong(name, "should have one flag a layer");
    for (size_t l = 0; l < flags.size(); ++l)
      flags[l] = value->type == gguf::Type::kBool ? header_.scalar<uint8_t>(*value, l) != 0
                                                  : header_.scalar<uint32_t>(*value, l) != 0;
    return flags;
  }
  if (value != nullptr) {
    SLUICE_TRY(period, number_in(name, 0, INT32_MAX));
  }
  for (int32_t l = 0; l < n_layers; ++l) flags[static_cast<size_t>(l)] = period == 0 || l % period < period - 1;
  return flags;
}

Result<float> MetadataKeys::number(const std::string& name, std::optional<float> otherwise) const {
  SLUICE_TRY(const auto value, header_.optional_f32(full(name)));
  if (!value && otherwise) return *otherwise;
  if (!value) return wrong(name, "is missing");
  if (!std::isfinite(*value)) return wrong(name, "is not a finite number");
  return *value;
}

Result<std::string> MetadataKeys::text(const std::string& name, std::optional<std::string> otherwise) const {
  SLUICE_TRY(const auto value, header_.optional_string(full(name)));
  if (!value && otherwise) return *otherwise;
  if (!value) return wrong(name, "is missing");
  return std::string(*value);
}

Result<bool> MetadataKeys::choice(const std::string& name, const char* first, const char* second) const {
  SLUICE_TRY(const std::string value, text(name));
  if (value != first && value != second)
    return wrong(name, "is '" + displayed(value) + "'; it should be " + first + " or " + second);
  return value == second;
}

Result<bool> MetadataKeys::flag(const std::string& name, std::optional<bool> otherwise) const {
  const gguf::Value* value = header_.find(full(name));
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr) return wrong(name, "is missing");
  if (value->is_array || value->type != gguf::Type::kBool) return wrong(name, "should be a bool");
  return header_.scalar<uint8_t>(*value) != 0;
}

Result<std::vector<int32_t>> MetadataKeys::numbers(const std::string& name, std::optional<size_t> count, int32_t least,
                                                   int32_t limit) const {
  const gguf::Value* value = header_.find(full(name));
  if (value == nullptr) return wrong(name, "is missing");
  if (!value->is_array_of(gguf::Type::kInt32)) return wrong(name, "should be an array of i32");
  if (count && value->count != *count)
    return wrong(name, "has " + std::to_string(value->count) + " numbers; it should have " + std::to_string(*count));
  std::vector<int32_t> out(value->count);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = header_.scalar<int32_t>(*value, i);
    if (out[i] < least || out[i] > limit)
      return wrong(name, "has the number " + std::to_string(out[i]) + "; they should be from " + std::to_string(least) +
                             " to " + std::to_string(limit));
  }
  return out;
}

Result<std::vector<std::string>> MetadataKeys::texts(const std::string& name) const {
  std::vector<std::string> out;
  const gguf::Value* value = header_.find(full(name));
  if (value == nullptr) return out;
  if (!value->is_array_of(gguf::Type::kString)) return wrong(name, "should be an array of strings");
  for (const std::string_view text : header_.strings(*value)) out.emplace_back(text);
  return out;
}

bool MetadataKeys::is(const std::string& name, float plain) const {
  const gguf::Value& value = *header_.find(full(name));
  if (value.is_array) return false;
  if (value.type == gguf::Type::kFloat32) return header_.scalar<float>(value) == plain;
  if (value.type == gguf::Type::kUint32) return static_cast<float>(header_.scalar<uint32_t>(value)) == plain;
  return value.type == gguf::Type::kBool && header_.scalar<uint8_t>(value) == plain;
}

Status MetadataKeys::must_be(const std::string& name, float plain, const char* what) const {
  if (!has(name) || is(name, plain)) return {};
  const auto error = wrong(name, std::string("asks for ") + what + ", which is not supported");
  if (refused_ == nullptr) return error;
  refused_->push_back(error.value().message);
  return {};
}

}  // namespace sluice
