#include "serve/logprob_form.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>

#include "model/utf8.h"

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

// Bytes that continue one are not counted.
int64_t characters(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

// A part of a character is told by its bytes.
std::string LogprobForm::name_of(Token token) const {
  const std::string piece = tokenizer_->piece(token, /*special=*/true);
  if (first_invalid_utf8(piece) == piece.size()) return piece;
  std::string name = "bytes:";
  for (const char c : piece) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

Json LogprobForm::of_chat(Token token, float logprob) const {
  Json bytes;  // null of what is no text
  for (const char c : tokenizer_->piece(token)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", name_of(token)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

Json LogprobForm::of_native(Token token, float logprob) const {
  const std::string piece = tokenizer_->piece(token, /*special=*/true);
  return {{"id", token},
          {"token", piece},
          {"bytes", std::vector<unsigned char>(piece.begin(), piece.end())},
          {"logprob", logprob}};
}

Json LogprobForm::next(std::span<const Token> tokens, std::span<const Logprobs> logprobs) {
  if (api_ == Api::kNative) {
    Json all = Json::array();
    for (size_t i = 0; i < tokens.size(); ++i) {
      Json one = of_native(tokens[i], logprobs[i].own), top = Json::array();
      for (const auto& [token, logprob] : logprobs[i].top) top.push_back(of_native(token, logprob));
      one["top_logprobs"] = std::move(top);
      all.push_back(std::move(one));
    }
    return all;
  }
  if (api_ == Api::kChat) {
    Json content = Json::array();
    for (size_t i = 0; i < tokens.size(); ++i) {
      Json one = of_chat(tokens[i], logprobs[i].own), top = Json::array();
      for (const auto& [token, logprob] : logprobs[i].top) top.push_back(of_chat(token, logprob));
      one["top_logprobs"] = std::move(top);
      content.push_back(std::move(one));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }
  Json names = Json::array(), numbers = Json::array(), tops = Json::array(), offsets = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    names.push_back(name_of(tokens[i]));
    numbers.push_back(logprobs[i].own);
    Json top = Json::object();
    for (const auto& [token, logprob] : logprobs[i].top) top[name_of(token)] = logprob;
    top[name_of(tokens[i])] = logprobs[i].own;
    tops.push_back(std::move(top));
    offsets.push_back(offset_);
    offset_ += characters(tokenizer_->piece(tokens[i]));
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(numbers)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace sluice
