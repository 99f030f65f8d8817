#include "compute/oracle.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace sluice::test {
namespace {

struct FreeContext {
  void operator()(llama_context* c) const { llama_free(c); }
};

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

std::vector<float> Oracle::logits(std::span<const Token> tokens, int32_t width) {
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
  std::vector<float> out;
  out.reserve(tokens.size() * vocab);
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
      out.insert(out.end(), row, row + vocab);
    }
  }
  llama_batch_free(batch);
  return out;
}

}  // namespace sluice::test
