// Text to tokens and back, by libllama with the vocabulary alone.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/model_file.h"

namespace sluice {

// A token that libllama looks for in a text before it splits the rest into words.
struct SpecialText {
  std::string text;  // never empty
  Token token = kNoToken;
  bool in_any_text = false;  // also with parse_special off: user-defined, not control or unknown
  bool strips_before = false, strips_after = false;  // swallows the white space beside it
};

// Tokens that say what is where when a gap in a text is filled; kNoToken: the model has none.
struct FillInTokens {
  Token prefix = kNoToken, suffix = kNoToken, middle = kNoToken;
  Token repository = kNoToken, file = kNoToken;  // before the names of what a text belongs to
};

// Thread safety: const methods may be called from several threads at once.
class Tokenizer {
 public:
  // Of a model that ModelFile::open has checked, so that no file can make libllama assert or throw.
  static Result<Tokenizer> load(const ModelFile& model) { return load(model.vocabulary()); }
  static Result<Tokenizer> load(const VocabularyPlace& place);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // `add_special`: the BOS (and EOS) token that the model wants around a text. `parse_special`: "<|im_start|>" in the
  // text becomes the control token instead of its characters. Invalid UTF-8 is an input error that names the byte's
  // offset.
  Result<std::vector<Token>> encode(std::string_view text, bool add_special, bool parse_special) const;

  // The bytes of a token: possibly part of a UTF-8 character. Control tokens give "" unless `special`.
  std::string piece(Token token, bool special = false) const;
  std::string decode(std::span<const Token> tokens, bool special = false) const;

  int32_t size() const;
  Token bos() const;  // kNoToken if the model has none
  Token eos() const;
  bool adds_bos() const;                             // the model wants BOS before a text
  bool ends_generation(Token token) const;           // EOS, end of turn, …
  const std::vector<SpecialText>& specials() const;  // by id
  FillInTokens fill_in() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether a draft model's tokens mean what the target's do: the same text for every id that both have. One may have
// more ids than the other (padding); those are never guessed. The error names both files and the first id that differs.
Status check_vocabulary(const std::string& draft_path, const Tokenizer& draft, const std::string& target_path,
                        const Tokenizer& target);

// Streaming: gives out text only in whole UTF-8 characters.
class TextStream {
 public:
  // shown: control tokens that are given out too, by their texts.
  explicit TextStream(const Tokenizer& tokenizer, std::vector<Token> shown = {})
      : tokenizer_(&tokenizer), shown_(std::move(shown)) {}

  // The text that became complete with this token; the bytes of an unfinished character wait for the next one. Bytes
  // that can't begin or continue a character come out as U+FFFD.
  std::string push(Token token);

  // What still waits, as U+FFFD if it is not a whole character.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::vector<Token> shown_;
  std::string pending_;
};

}  // namespace sluice
