#include "model/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unordered_set>

namespace sluice {

namespace {

constexpr size_t kLongestToken = 1 << 16;
constexpr int32_t kByteToken = 6;  // llama_token_type

// Pre-tokenizers, which split a text into words before merges: those that libllama has code of its own for, and those
// that it runs through std::regex.
constexpr std::string_view kPlainPreTokenizers =
    " gpt-2 phi-2 gigachat a.x-4.0 jais mellum exaone4 mpt olmo granite-docling trillion "
    " smollm starcoder refact codeshell command-r exaone minerva-7b mellum2 "
    " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe glm4 glm5 chatglm-bpe "
    " qwen2 megrez deepseek-r1-qwen kormo f2llmv2 stablelm2 hunyuan solar-open grok-2 laguna "
    " qwen35 kimi-k2 ";
constexpr std::string_view kRecursivePreTokenizers =
    " default falcon tekken gpt-4o llama4 kanana2 talkie minimax-m2 "
    " deepseek-llm deepseek-coder deepseek-v3 hunyuan-dense joyai-llm hy_v4 spark2_5 "
    " seed-coder bailingmoe bailingmoe2 llada-moe minicpm5 ufakzeka "
    " viking poro-chat bloom gpt3-finnish ";

bool is_one_of(std::string_view list, std::string_view name) {
  return !name.empty() && name.find(' ') == name.npos && list.find(" " + std::string(name) + " ") != list.npos;
}

tl::unexpected<Error> wrong(std::string_view key, const std::string& why) {
  return input_error("metadata key 'tokenizer.ggml." + std::string(key) + "' " + why);
}

std::string byte_token_text(int byte) {
  char text[8];
  std::snprintf(text, sizeof(text), "<0x%02X>", static_cast<unsigned>(byte) & 0xFF);
  return text;
}

class Checker {
 public:
  explicit Checker(const gguf::Header& header) : header_(header) {}

  Result<VocabularyFacts> run() {
    SLUICE_TRY(const auto model, header_.optional_string("tokenizer.ggml.model"));
    if (!model || (*model != "gpt2" && *model != "llama" && *model != "gemma4"))
      return wrong("model", "is " + (model ? "'" + std::string(model->substr(0, 32)) + "'" : std::string("missing")) +
                                "; gpt2, llama and gemma4 are supported");
    const bool sentence_piece = *model == "llama", is_byte_level = *model == "gpt2";
    SLUICE_TRY_STATUS(read_tokens());
    SLUICE_TRY_STATUS(check_types());
    SLUICE_TRY_STATUS(check_scores(sentence_piece));
    SLUICE_TRY_STATUS(check_ids());
    VocabularyFacts facts;
    if (!is_byte_level) SLUICE_TRY_STATUS(check_byte_tokens());
    if (!sentence_piece) SLUICE_TRY_STATUS(check_merges());
    if (is_byte_level) {
      SLUICE_TRY(facts.splits_recursively, read_pre_tokenizer());
    }
    return facts;
  }

 private:
  const gguf::Value* find(std::string_view key) const { return header_.find("tokenizer.ggml." + std::string(key)); }

  Status read_tokens() {
    const gguf::Value* list = find("tokens");
    if (list == nullptr || !list->is_array_of(gguf::Type::kString) || list->count == 0)
      return wrong("tokens", "should be an array of strings");
    tokens_ = header_.strings(*list);
    texts_.reserve(tokens_.size());
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].size() > kLongestToken) return wrong("tokens", "has a token of more than 65536 bytes");
      // libllama reads texts up to a zero byte.
      if (tokens_[i].find('\0') != std::string_view::npos) return wrong("tokens", "has a token with a zero byte in it");
      // libllama gives an empty token this text.
      const bool is_new =
          texts_.insert(tokens_[i].empty() ? "[EMPTY_" + std::to_string(i) + "]" : std::string(tokens_[i])).second;
      if (!is_new) return wrong("tokens", "has the same text twice, the second time as token " + std::to_string(i));
    }
    return {};
  }

  Status check_types() const {
    const gguf::Value* types = find("token_type");
    if (types == nullptr) return {};
    if (!types->is_array_of(gguf::Type::kInt32) || types->count != tokens_.size())
      return wrong("token_type", "should have one i32 a token");
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (header_.scalar<int32_t>(*types, i) != kByteToken) continue;
      const std::string_view text = tokens_[i];
      const bool shaped = text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
      if (!shaped || text.substr(3, 2).find_first_not_of("0123456789ABCDEFabcdef") != text.npos)
        return wrong("token_type", "calls token " + std::to_string(i) + " a byte, whose text is not like <0x0A>");
    }
    return {};
  }

  Status check_scores(bool required) const {
    const gguf::Value* scores = find("scores");
    if (scores == nullptr && !required) return {};
    if (scores == nullptr || !scores->is_array_of(gguf::Type::kFloat32) || scores->count != tokens_.size())
      return wrong("scores", "should have one f32 a token");
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (std::isnan(header_.scalar<float>(*scores, i)))
        return wrong("scores", "has no number for token " + std::to_string(i));
    return {};
  }

  // Every "<name>_token_id" that there is names a token; whoever has one is that wants it before a text has it.
  Status check_ids() const {
    for (const auto& [key, value] : header_.entries()) {
      if (!key.starts_with("tokenizer.ggml.") || !key.ends_with("_token_id")) continue;
      SLUICE_TRY(const auto id, header_.optional_u32(key));
      if (*id >= tokens_.size())
        return input_error("metadata key '" + key + "' is " + std::to_string(*id) + "; the vocabulary has " +
                           std::to_string(tokens_.size()) + " tokens");
    }
    for (const char* key : {"add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix"}) {
      const gguf::Value* value = find(key);
      if (value != nullptr && (value->is_array || value->type != gguf::Type::kBool))
        return wrong(key, "should be a bool");
    }
    return {};
  }

  // For what there is no piece for, texts come as these.
  Status check_byte_tokens() const {
    for (int byte = 0; byte < 256; ++byte)
      if (!texts_.contains(byte_token_text(byte))) return wrong("tokens", "has no token " + byte_token_text(byte));
    return {};
  }

  Status check_merges() const {
    const gguf::Value* merges = find("merges");
    if (merges == nullptr || !merges->is_array_of(gguf::Type::kString))
      return wrong("merges", "should be an array of strings");
    if (merges->count > INT32_MAX) return wrong("merges", "has too many entries");
    const auto pairs = header_.strings(*merges);
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (pairs[i].find('\0') != std::string_view::npos) return wrong("merges", "has an entry with a zero byte in it");
      // Two parts; a space may itself begin the first.
      const size_t space = pairs[i].find(' ', 1);
      if (pairs[i].size() > 2 * kLongestToken || space == std::string_view::npos || space + 1 == pairs[i].size())
        return wrong("merges", "entry " + std::to_string(i) + " is not two parts with a space between them");
    }
    return {};
  }

  Result<bool> read_pre_tokenizer() const {
    SLUICE_TRY(const auto name, header_.optional_string("tokenizer.ggml.pre"));
    const std::string_view wanted = name && !name->empty() ? *name : "default";
    if (is_one_of(kPlainPreTokenizers, wanted)) return false;
    if (is_one_of(kRecursivePreTokenizers, wanted)) return true;
    return wrong("pre", "is '" + std::string(wanted.substr(0, 32)) + "', which is not known");
  }

  const gguf::Header& header_;
  std::vector<std::string_view> tokens_;
  std::unordered_set<std::string> texts_;
};

}  // namespace

Result<VocabularyFacts> read_vocabulary(const gguf::Header& header) { return Checker(header).run(); }

}  // namespace sluice
