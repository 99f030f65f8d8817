#include "train/gguf_writer.h"

#include <cstring>
#include <fstream>

#include "base/file.h"
#include "model/gguf.h"

namespace sluice {

void GgufWriter::set(const std::string& key, const std::vector<std::string>& values) {
  std::vector<const char*> texts;
  for (const auto& value : values) texts.push_back(value.c_str());
  gguf_set_arr_str(file_.get(), key.c_str(), texts.data(), texts.size());
}

Status GgufWriter::copy_metadata(const std::string& path, const std::string& prefix) {
  gguf_context* from = gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr});
  if (from == nullptr) return input_error(path + ": is no readable GGUF file");
  // gguf_set_kv takes everything; what is not asked for goes from a copy first.
  std::vector<std::string> others;
  for (int64_t i = 0; i < gguf_get_n_kv(from); ++i)
    if (const std::string key = gguf_get_key(from, i); !key.starts_with(prefix)) others.push_back(key);
  for (const auto& key : others) gguf_remove_key(from, key.c_str());
  gguf_set_kv(file_.get(), from);
  gguf_free(from);
  return {};
}

void GgufWriter::add_bytes(const std::string& name, std::span<const int64_t> shape, ggml_type type,
                           std::vector<std::byte> bytes) {
  SLUICE_CHECK(!shape.empty() && shape.size() <= 2, "a vector or a matrix");
  SLUICE_CHECK(name.size() < GGML_MAX_NAME, "a name that GGUF can hold");
  ggml_tensor* tensor = shape.size() == 1 ? ggml_new_tensor_1d(tensors_.get(), type, shape[0])
                                          : ggml_new_tensor_2d(tensors_.get(), type, shape[1], shape[0]);
  ggml_set_name(tensor, name.c_str());
  SLUICE_CHECK(ggml_nbytes(tensor) == bytes.size(), "bytes that fill the shape");
  bytes_.push_back(std::move(bytes));
  tensor->data = bytes_.back().data();
  gguf_add_tensor(file_.get(), tensor);
}

void GgufWriter::add(const std::string& name, std::span<const int64_t> shape, std::span<const float> values,
                     ggml_type type) {
  const int64_t columns = shape.back(), rows = static_cast<int64_t>(values.size()) / columns;
  std::vector<std::byte> bytes(ggml_row_size(type, columns) * static_cast<size_t>(rows));
  if (type == GGML_TYPE_F32)
    std::memcpy(bytes.data(), values.data(), bytes.size());
  else
    ggml_quantize_chunk(type, values.data(), bytes.data(), 0, rows, columns, nullptr);
  add_bytes(name, shape, type, std::move(bytes));
}

namespace {

template <class T>
std::vector<std::byte> bytes_of(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

tl::unexpected<Error> cannot_write(const std::string& path) {
  return runtime_error(path + ": can't be written (is the disk full?); what was there before is kept");
}

}  // namespace

void GgufWriter::add(const std::string& name, std::span<const int32_t> values) {
  add_bytes(name, std::array{static_cast<int64_t>(values.size())}, GGML_TYPE_I32, bytes_of(values));
}
void GgufWriter::add(const std::string& name, std::span<const int64_t> values) {
  add_bytes(name, std::array{static_cast<int64_t>(values.size())}, GGML_TYPE_I64, bytes_of(values));
}

Status GgufWriter::write(const std::string& path) const {
  WholeFile file(path);
  if (file.stream() == nullptr || !gguf_write_to_file_ptr(file_.get(), file.stream(), /*only_meta=*/false) ||
      file.commit())
    return cannot_write(path);
  return {};
}

namespace {

GgufContents::Entry read_tensor(const gguf::TensorInfo& info, const std::byte* file) {
  GgufContents::Entry entry;
  if (info.n_dims == 1)
    entry.shape = {info.ne[0]};
  else
    entry.shape = {info.ne[1], info.ne[0]};
  entry.values.resize(static_cast<size_t>(info.ne[0] * info.ne[1]));
  for (int64_t row = 0; row < info.ne[1]; ++row) {
    const std::byte* from = file + info.offset + static_cast<size_t>(row) * info.row_bytes;
    float* to = entry.values.data() + row * info.ne[0];
    if (info.type == GGML_TYPE_F32)
      std::memcpy(to, from, static_cast<size_t>(info.ne[0]) * sizeof(float));
    else
      ggml_get_type_traits(info.type)->to_float(from, to, info.ne[0]);
  }
  return entry;
}

}  // namespace

Result<GgufContents> read_gguf(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return input_error(path + ": there is no such readable file");
  std::vector<std::byte> bytes(static_cast<size_t>(file.tellg()));
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())))
    return input_error(path + ": can't be read");
  const auto header = gguf::Header::parse(bytes);
  if (!header) return input_error(path + ": " + header.error().message);
  GgufContents contents;
  for (const auto& info : header->tensors())
    if (info.type == GGML_TYPE_F32 || ggml_get_type_traits(info.type)->to_float != nullptr)
      contents.tensors.emplace(info.name, read_tensor(info, bytes.data()));
  for (const auto& [key, value] : header->entries())
    if (value.type == gguf::Type::kString && !value.is_array)
      contents.strings.emplace(key, std::string(header->string(value)));
  return contents;
}

}  // namespace sluice
