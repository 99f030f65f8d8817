#include "compute/oracle.h"

#include <ggml-cpu.h>
#include <gguf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

// libllama's own, which no header of its installation declares.
LLAMA_API void llama_set_embeddings_nextn(llama_context* context, bool value, bool masked);
LLAMA_API float* llama_get_embeddings_nextn_ith(llama_context* context, int32_t i);

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
  params.load_mtp = true;
  model_.reset(llama_model_load_from_file(path.c_str(), params));
  if (!model_) throw std::runtime_error("libllama can't load " + path);
}

int32_t Oracle::n_vocab() const { return llama_vocab_n_tokens(llama_model_get_vocab(model_.get())); }

Logits Oracle::further_logits(std::span<const Token> tokens, int32_t n) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(context_);
  params.n_batch = params.n_ubatch = static_cast<uint32_t>(tokens.size());
  params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.no_perf = true;
  using Context = std::unique_ptr<llama_context, FreeContext>;
  const Context target(llama_init_from_model(model_.get(), params));
  params.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
  const Context further(llama_init_from_model(model_.get(), params));
  if (!target || !further) throw std::runtime_error("libllama can't make a context");
  llama_set_embeddings_nextn(target.get(), true, /*masked=*/false);
  llama_set_embeddings_nextn(further.get(), true, /*masked=*/true);
  std::vector<llama_token> copy(tokens.begin(), tokens.end());
  llama_batch whole = llama_batch_get_one(copy.data(), static_cast<int32_t>(copy.size()));
  if (llama_decode(target.get(), whole) != 0) throw std::runtime_error("libllama can't decode");

  const auto width = static_cast<size_t>(llama_model_n_embd(model_.get())), vocab = static_cast<size_t>(n_vocab());
  Logits out;
  std::vector<float> state(width);
  const auto end = static_cast<llama_pos>(tokens.size()) + n;
  for (llama_pos position = 1; position < end; ++position) {
    const bool forced = position < static_cast<llama_pos>(tokens.size());
    const float* const from = forced ? llama_get_embeddings_nextn_ith(target.get(), position - 1)
                                     : llama_get_embeddings_nextn_ith(further.get(), 0);
    std::copy(from, from + width, state.begin());
    const Token token = forced ? tokens[static_cast<size_t>(position)]
                               : static_cast<Token>(std::ranges::max_element(out.back()) - out.back().begin());
    llama_batch_ext* const batch = llama_batch_ext_init(further.get());
    const int32_t at = llama_batch_ext_add_token(batch, 0, token);
    llama_batch_ext_set_pos(batch, at, &position);
    llama_batch_ext_set_embd_token(batch, at, {state.data(), 1, width});
    llama_batch_ext_set_output_logits(batch, at, true);
    const int32_t failed = llama_process(further.get(), LLAMA_PROCESS_TYPE_DECODE, batch);
    llama_batch_ext_free(batch);
    if (failed != 0) throw std::runtime_error("libllama can't decode by the further layer");
    const float* const row = llama_get_logits_ith(further.get(), 0);
    out.emplace_back(row, row + vocab);
  }
  return out;
}

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
