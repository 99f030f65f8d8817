#include "model/metadata_text.h"

#include <cstdio>

namespace sluice {

namespace {

constexpr size_t kDisplayedBytes = 80;

std::string scalar_text(const gguf::Header& header, const gguf::Value& value, uint64_t i) {
  switch (value.type) {
    case gguf::Type::kUint8:
      return std::to_string(header.scalar<uint8_t>(value, i));
    case gguf::Type::kInt8:
      return std::to_string(header.scalar<int8_t>(value, i));
    case gguf::Type::kUint16:
      return std::to_string(header.scalar<uint16_t>(value, i));
    case gguf::Type::kInt16:
      return std::to_string(header.scalar<int16_t>(value, i));
    case gguf::Type::kUint32:
      return std::to_string(header.scalar<uint32_t>(value, i));
    case gguf::Type::kInt32:
      return std::to_string(header.scalar<int32_t>(value, i));
    case gguf::Type::kUint64:
      return std::to_string(header.scalar<uint64_t>(value, i));
    case gguf::Type::kInt64:
      return std::to_string(header.scalar<int64_t>(value, i));
    case gguf::Type::kFloat32: {
      char text[32];
      std::snprintf(text, sizeof(text), "%g", static_cast<double>(header.scalar<float>(value, i)));
      return text;
    }
    case gguf::Type::kFloat64: {
      char text[32];
      std::snprintf(text, sizeof(text), "%g", header.scalar<double>(value, i));
      return text;
    }
    case gguf::Type::kBool:
      return header.scalar<uint8_t>(value, i) != 0 ? "true" : "false";
    default:
      return "";
  }
}

std::string value_text(const gguf::Header& header, const gguf::Value& value) {
  if (value.type == gguf::Type::kString && !value.is_array) return displayed(header.string(value));
  if (value.type == gguf::Type::kString) return std::to_string(value.count) + " texts";
  if (!value.is_array) return scalar_text(header, value, 0);
  std::string text;
  for (uint64_t i = 0; i < value.count && text.size() < kDisplayedBytes; ++i)
    text += (i > 0 ? ", " : "") + scalar_text(header, value, i);
  return displayed(text);
}

std::string file_stem(const std::string& path) {
  const size_t slash = path.rfind('/');
  std::string name = slash == path.npos ? path : path.substr(slash + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

}  // namespace

std::string displayed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (out.size() >= kDisplayedBytes && (byte & 0xC0) != 0x80) return out + "…";
    if (c == '\n')
      out += "\\n";
    else
      out += (byte < 32 || byte == 127) ? ' ' : c;
  }
  return out;
}

std::vector<MetadataEntry> metadata_entries(const gguf::Header& header) {
  std::vector<MetadataEntry> out;
  for (const auto& [key, value] : header.entries()) {
    std::string type = gguf::type_name(value.type);
    if (value.is_array) type += "[" + std::to_string(value.count) + "]";
    out.push_back({displayed(key), std::move(type), value_text(header, value)});
  }
  return out;
}

std::string name_of(const Shard& shard) {
  const gguf::Value* name = shard.header.find("general.name");
  if (name == nullptr || name->is_array || name->type != gguf::Type::kString || shard.header.string(*name).empty())
    return file_stem(shard.file.path());
  return std::string(shard.header.string(*name));
}

}  // namespace sluice
