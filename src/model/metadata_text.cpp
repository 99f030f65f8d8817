#include "model/metadata_text.h"

#include <cstdio>

namespace sluice {

namespace {

constexpr size_t kDisplayedBytes = 80;

std::string text(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return text;
}

std::string scalar_text(const gguf::Header& header, const gguf::Value& value, uint64_t i) {
  using enum gguf::Type;
  const auto whole = [&]<class T>(T) { return std::to_string(header.scalar<T>(value, i)); };
  switch (value.type) {
    case kUint8:
      return whole(uint8_t{});
    case kInt8:
      return whole(int8_t{});
    case kUint16:
      return whole(uint16_t{});
    case kInt16:
      return whole(int16_t{});
    case kUint32:
      return whole(uint32_t{});
    case kInt32:
      return whole(int32_t{});
    case kUint64:
      return whole(uint64_t{});
    case kInt64:
      return whole(int64_t{});
    case kFloat32:
      return text(header.scalar<float>(value, i));
    case kFloat64:
      return text(header.scalar<double>(value, i));
    case kBool:
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
