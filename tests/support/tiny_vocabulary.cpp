#include "support/tiny_vocabulary.h"

#include <cstdio>
#include <set>
#include <stdexcept>

namespace sluice::test {

namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };

const char* const kWords[] = {" the",   "the",   " and",   "ing",   " of",    " to",    " in",   " is",  " you",
                              "er",     " that", "tion",   " it",   " for",   "re",     " with", " on",  " as",
                              " was",   " are",  "ed",     " be",   " his",   " not",   " or",   "es",   " by",
                              " sky",   " blue", " hello", "hello", " world", " token", " def",  "    ", " return",
                              " model", "ly",    " this",  " have", " from",  " one",   " had",  " word"};

// The words above, then aa, ab, …, then aaa, aab, …: as long as `take` wants more. Each word comes as its first part
// and the one byte after it, shorter ones before those that begin with them.
template <class Take>
void generate_words(Take take) {
  for (const std::string word : kWords)
    for (size_t n = 2; n <= word.size(); ++n)
      if (!take(word.substr(0, n - 1), word.substr(n - 1, 1))) return;
  const std::string letters = "abcdefghijklmnopqrstuvwxyz";
  for (char a : letters)
    for (char b : letters)
      if (!take({a}, {b})) return;
  for (char a : letters)
    for (char b : letters)
      for (char c : letters)
        if (!take({a, b}, {c})) return;
  throw std::runtime_error("tiny_vocabulary: more tokens than there are words");
}

std::string in_gpt2_alphabet(const std::string& bytes) {
  std::string text;
  for (char c : bytes) text += gpt2_byte_text(static_cast<uint8_t>(c));
  return text;
}

TinyVocabulary gpt2_vocabulary(int32_t extra_tokens) {
  TinyVocabulary v;
  v.model = "gpt2";
  v.tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  v.types = {kControl, kControl, kControl};
  v.bos = 0;
  v.eos = 2;
  for (int byte = 0; byte < 256; ++byte) v.tokens.push_back(gpt2_byte_text(static_cast<uint8_t>(byte)));
  const size_t size = v.tokens.size() + static_cast<size_t>(extra_tokens);
  std::set<std::string> seen;
  if (extra_tokens > 0)
    generate_words([&](const std::string& left, const std::string& right) {
      if (seen.insert(left + right).second) {
        v.tokens.push_back(in_gpt2_alphabet(left + right));
        v.merges.push_back(in_gpt2_alphabet(left) + " " + in_gpt2_alphabet(right));
      }
      return v.tokens.size() < size;
    });
  v.types.resize(v.tokens.size(), kNormal);
  return v;
}

void add_byte_tokens(TinyVocabulary& v) {
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    v.tokens.push_back(text);
    v.types.push_back(kByte);
  }
}

std::string with_visible_spaces(const std::string& bytes) {
  std::string text;
  for (char c : bytes) text += c == ' ' ? std::string("▁") : std::string(1, c);
  return text;
}

TinyVocabulary gemma4_vocabulary(int32_t extra_tokens) {
  TinyVocabulary v;
  v.model = "gemma4";
  v.tokens = {"<pad>", "<eos>", "<bos>"};
  v.types = {kControl, kControl, kControl};
  v.bos = 2;
  v.eos = 1;
  v.adds_bos = true;
  add_byte_tokens(v);
  const size_t size = v.tokens.size() + static_cast<size_t>(extra_tokens);
  std::set<std::string> seen;
  const auto add = [&](const std::string& text) {
    const bool is_new = v.tokens.size() < size && seen.insert(text).second;
    if (is_new) v.tokens.push_back(text);
    return is_new;
  };
  for (const char* text : {"▁", "\n", "\n\n", "\n\n\n"}) add(text);
  for (char c : std::string("abcdefghijklmnopqrstuvwxyz")) add({c});
  if (v.tokens.size() < size)
    generate_words([&](const std::string& left, const std::string& right) {
      if (add(with_visible_spaces(left + right)))
        v.merges.push_back(with_visible_spaces(left) + " " + with_visible_spaces(right));
      return v.tokens.size() < size;
    });
  v.types.resize(v.tokens.size(), kNormal);
  return v;
}

TinyVocabulary llama_vocabulary(int32_t extra_tokens) {
  TinyVocabulary v;
  v.model = "llama";
  v.tokens = {"<unk>", "<s>", "</s>"};
  v.types = {kUnknown, kControl, kControl};
  v.bos = 1;
  v.eos = 2;
  v.adds_bos = true;
  add_byte_tokens(v);
  const size_t size = v.tokens.size() + static_cast<size_t>(extra_tokens);
  std::set<std::string> seen;
  const auto add = [&](const std::string& bytes) {
    if (v.tokens.size() >= size || !seen.insert(bytes).second) return;
    v.tokens.push_back(with_visible_spaces(bytes));
  };
  for (char c : std::string(" abcdefghijklmnopqrstuvwxyz")) add({c});
  if (v.tokens.size() < size)
    generate_words([&](const std::string& left, const std::string& right) {
      add(left + right);
      return v.tokens.size() < size;
    });
  v.types.resize(v.tokens.size(), kNormal);
  v.scores.resize(v.tokens.size(), 0.0f);
  for (size_t i = 259; i < v.scores.size(); ++i) v.scores[i] = -static_cast<float>(i - 258);
  return v;
}

}  // namespace

// Printable Latin-1 characters stand for themselves; the other bytes, in order, for the characters from U+0100 on.
std::string gpt2_byte_text(uint8_t byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int character = byte;
  if (!printable(byte)) {
    character = 256;
    for (int b = 0; b < byte; ++b) character += !printable(b);
  }
  if (character < 128) return {static_cast<char>(character)};
  return {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3F))};
}

TinyVocabulary tiny_vocabulary(const std::string& tokenizer, int32_t extra_tokens) {
  if (tokenizer == "gpt2") return gpt2_vocabulary(extra_tokens);
  if (tokenizer == "gemma4") return gemma4_vocabulary(extra_tokens);
  if (tokenizer == "llama") return llama_vocabulary(extra_tokens);
  throw std::runtime_error("tiny_vocabulary: no tokenizer '" + tokenizer + "'");
}

}  // namespace sluice::test
