#include "compute/oracle.h"

#include <ggml-cpu.h>
#include <gguf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace sluice::test {
namespace {

struct FreeContext {
  void operator()(llama_context* c) const { llama_free(c); }
  void operator()(ggml_context* c) const { ggml_free(c); }
  void operator()(gguf_context* c) const { gguf_free(c); }
};
using Tensors = std::unique_ptr<ggml_context, FreeContext>;
using Metadata = std::unique_ptr<gguf_context, FreeContext>;

void print_errors(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

}  // namespace

Oracle::Oracle(const std::string& path, int32_t context) : context_(context) {
  llama_log_set(print_errors, nullptr);
  llama_backend_init();
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  model_.reset(llama_model_load_from_file(path.c_str(), params));
  if (!model_) throw std::runtime_error("libllama can't load " + path);
}

int32_t Oracle::n_vocab() const { return llama_vocab_n_tokens(llama_model_get_vocab(model_.get())); }

Logits Oracle::logits(std::span<const Token> tokens, int32_t width) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(context_);
  params.n_batch = params.n_ubatch = static_cast<uint32_t>(width);
  params.n_threads = params.n_threads_batch = 1;  // its threads spin: slow beside other tests
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.no_perf = true;
  const std::unique_ptr<llama_context, FreeContext> context(llama_init_from_model(model_.get(), params));
  if (!context) throw std::runtime_error("libllama can't make a context");

  const auto vocab = static_cast<size_t>(n_vocab());
  Logits out;
  llama_batch batch = llama_batch_init(width, 0, 1);
  for (size_t first = 0; first < tokens.size(); first += static_cast<size_t>(width)) {
    batch.n_tokens = static_cast<int32_t>(std::min(static_cast<size_t>(width), tokens.size() - first));
    for (int32_t i = 0; i < batch.n_tokens; ++i) {
      batch.token[i] = tokens[first + static_cast<size_t>(i)];
      batch.pos[i] = static_cast<llama_pos>(first) + i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    if (llama_decode(context.get(), batch) != 0) throw std::runtime_error("libllama can't decode");
    for (int32_t i = 0; i < batch.n_tokens; ++i) {
      const float* row = llama_get_logits_ith(context.get(), i);
      out.emplace_back(row, row + vocab);
    }
  }
  llama_batch_free(batch);
  return out;
}

void write_as_f32(const std::string& from, const std::string& to) {
  ggml_cpu_init();  // fills the tables that the conversion of f16 reads
  ggml_context* data = nullptr;
  const Metadata source(gguf_init_from_file(from.c_str(), {.no_alloc = false, .ctx = &data}));
  if (!source) throw std::runtime_error("can't read " + from);
  const Tensors given(data);

  const Metadata target(gguf_init_empty());
  gguf_set_kv(target.get(), source.get());
  const int64_t n = gguf_get_n_tensors(source.get());
  const Tensors wide(ggml_init({static_cast<size_t>(n) * ggml_tensor_overhead(), nullptr, true}));
  std::vector<std::vector<float>> values;
  for (int64_t i = 0; i < n; ++i) {
    const ggml_tensor* tensor = ggml_get_tensor(given.get(), gguf_get_tensor_name(source.get(), i));
    values.emplace_back(static_cast<size_t>(ggml_nelements(tensor)));
    if (tensor->type == GGML_TYPE_F32) {
      std::memcpy(values.back().data(), tensor->data, ggml_nbytes(tensor));
    } else {
      ggml_get_type_traits(tensor->type)->to_float(tensor->data, values.back().data(), ggml_nelements(tensor));
    }
    ggml_tensor* copy = ggml_new_tensor(wide.get(), GGML_TYPE_F32, ggml_n_dims(tensor), tensor->ne);
    ggml_set_name(copy, tensor->name);
    copy->data = values.back().data();
    gguf_add_tensor(target.get(), copy);
  }
  if (!gguf_write_to_file(target.get(), to.c_str(), false)) throw std::runtime_error("can't write " + to);
}

}  // namespace sluice::test
