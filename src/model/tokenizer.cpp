#include "model/tokenizer.h"

#include <llama.h>
#include <pthread.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <stdexcept>

#include "model/utf8.h"

namespace sluice {

namespace {

constexpr size_t kLongestText = size_t{1} << 28;  // libllama counts in int32_t

// What std::regex needs of the stack for each byte of a word, with room to spare; and how much of it a thread gets at
// most.
constexpr size_t kStackBytesPerByte = 2048, kShortText = 1024, kLongestStack = size_t{2} << 30;

struct ModelDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
};

// libllama speaks to stderr unless somebody listens.
void keep_quiet() {
  static std::once_flag once;
  std::call_once(once, [] { llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr); });
}

// Runs `work` on a thread with that much stack. False if there can be none.
bool run_with_stack(size_t stack_bytes, std::function<void()> work) {
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0) return false;
  const auto body = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  const bool started = pthread_attr_setstacksize(&attributes, stack_bytes) == 0 &&
                       pthread_create(&thread, &attributes, body, &work) == 0;
  pthread_attr_destroy(&attributes);
  if (started) pthread_join(thread, nullptr);
  return started;
}

// The bytes of every token, control tokens included.
std::vector<std::string> all_pieces(const llama_vocab* vocab) {
  std::vector<std::string> pieces(static_cast<size_t>(llama_vocab_n_tokens(vocab)));
  std::string buffer(64, '\0');
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto token = static_cast<llama_token>(i);
    int32_t n = llama_token_to_piece(vocab, token, buffer.data(), static_cast<int32_t>(buffer.size()), 0, true);
    if (n < 0) {
      buffer.resize(static_cast<size_t>(-n));
      n = llama_token_to_piece(vocab, token, buffer.data(), static_cast<int32_t>(buffer.size()), 0, true);
    }
    SLUICE_CHECK(n >= 0, "the buffer is as long as libllama asked for");
    pieces[i].assign(buffer, 0, static_cast<size_t>(n));
  }
  return pieces;
}

std::vector<SpecialText> all_specials(const llama_vocab* vocab) {
  std::vector<SpecialText> specials;
  for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    const int attributes = llama_vocab_get_attr(vocab, token);
    const auto any_of = [&](int wanted) { return (attributes & wanted) != 0; };
    const bool hidden = any_of(LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN);
    const char* text = llama_vocab_get_text(vocab, token);
    if ((!hidden && !any_of(LLAMA_TOKEN_ATTR_USER_DEFINED)) || *text == '\0') continue;
    specials.push_back({.text = text,
                        .token = token,
                        .in_any_text = !hidden,
                        .strips_before = any_of(LLAMA_TOKEN_ATTR_LSTRIP),
                        .strips_after = any_of(LLAMA_TOKEN_ATTR_RSTRIP)});
  }
  return specials;
}

}  // namespace

struct Tokenizer::Impl {
  std::unique_ptr<llama_model, ModelDeleter> model;
  const llama_vocab* vocab = nullptr;
  bool splits_recursively = false;
  std::vector<std::string> pieces;
  std::vector<SpecialText> specials;

  bool valid(Token token) const { return token >= 0 && static_cast<size_t>(token) < pieces.size(); }

  // REQUIRES valid(token). What decoding leaves out.
  bool hidden(Token token) const {
    return (llama_vocab_get_attr(vocab, token) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0;
  }

  // REQUIRES: text is UTF-8 and not overlong. May throw what libllama throws.
  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const {
    const auto length = static_cast<int32_t>(text.size());
    std::vector<Token> tokens(text.size() + 8);
    int32_t n = llama_tokenize(vocab, text.data(), length, tokens.data(), static_cast<int32_t>(tokens.size()),
                               add_special, parse_special);
    if (n < 0) {
      tokens.resize(static_cast<size_t>(-static_cast<int64_t>(n)));
      n = llama_tokenize(vocab, text.data(), length, tokens.data(), static_cast<int32_t>(tokens.size()), add_special,
                         parse_special);
    }
    if (n < 0) throw std::length_error("the text has too many tokens");
    tokens.resize(static_cast<size_t>(n));
    return tokens;
  }
};

Result<Tokenizer> Tokenizer::load(const VocabularyPlace& place) {
  keep_quiet();
  auto impl = std::make_unique<Impl>();
  try {
    llama_model_params parameters = llama_model_default_params();
    parameters.vocab_only = true;
    impl->model.reset(llama_model_load_from_file(place.path.c_str(), parameters));
    if (impl->model == nullptr) return input_error(place.path + ": libllama cannot load its vocabulary");
    impl->vocab = llama_model_get_vocab(impl->model.get());
    impl->pieces = all_pieces(impl->vocab);
    impl->specials = all_specials(impl->vocab);
  } catch (const std::exception& e) {
    return input_error(place.path + ": libllama cannot load its vocabulary: " + e.what());
  }
  if (llama_vocab_n_tokens(impl->vocab) != place.n_tokens)
    return input_error(place.path + ": has changed while it was loaded");
  if ((llama_vocab_get_add_bos(impl->vocab) && llama_vocab_bos(impl->vocab) == LLAMA_TOKEN_NULL) ||
      (llama_vocab_get_add_eos(impl->vocab) && llama_vocab_eos(impl->vocab) == LLAMA_TOKEN_NULL))
    return input_error(place.path + ": its vocabulary wants a BOS or EOS token around a text but has none");
  impl->splits_recursively = place.splits_recursively;
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<std::vector<Token>> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special) const {
  if (const size_t at = first_invalid_utf8(text); at < text.size())
    return input_error("the text is not UTF-8: byte " + std::to_string(at) + " belongs to no character");
  const size_t stack = text.size() * kStackBytesPerByte;
  const bool needs_stack = impl_->splits_recursively && text.size() > kShortText;
  if (text.size() > kLongestText || (needs_stack && stack > kLongestStack))
    return input_error("the text has " + std::to_string(text.size()) +
                       " bytes, more than this vocabulary can take at once");
  Result<std::vector<Token>> tokens;
  const auto work = [&] {
    try {
      tokens = impl_->tokenize(text, add_special, parse_special);
    } catch (const std::exception& e) {
      tokens = input_error(std::string("libllama cannot tokenize the text: ") + e.what());
    }
  };
  if (!needs_stack) {
    work();
  } else if (!run_with_stack(stack + (size_t{1} << 20), work)) {
    return runtime_error("no memory to tokenize a text of " + std::to_string(text.size()) + " bytes");
  }
  return tokens;
}

std::string Tokenizer::piece(Token token, bool special) const {
  if (!impl_->valid(token) || (!special && impl_->hidden(token))) return "";
  return impl_->pieces[static_cast<size_t>(token)];
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool special) const {
  std::string text;
  for (const Token token : tokens) text += piece(token, special);
  return text;
}

int32_t Tokenizer::size() const { return static_cast<int32_t>(impl_->pieces.size()); }
Token Tokenizer::bos() const { return llama_vocab_bos(impl_->vocab); }
Token Tokenizer::eos() const { return llama_vocab_eos(impl_->vocab); }
bool Tokenizer::adds_bos() const { return llama_vocab_get_add_bos(impl_->vocab); }
bool Tokenizer::ends_generation(Token token) const {
  return impl_->valid(token) && llama_vocab_is_eog(impl_->vocab, token);
}
const std::vector<SpecialText>& Tokenizer::specials() const { return impl_->specials; }

FillInTokens Tokenizer::fill_in() const {
  const llama_vocab* const vocab = impl_->vocab;
  return {.prefix = llama_vocab_fim_pre(vocab),
          .suffix = llama_vocab_fim_suf(vocab),
          .middle = llama_vocab_fim_mid(vocab),
          .repository = llama_vocab_fim_rep(vocab),
          .file = llama_vocab_fim_sep(vocab)};
}

Status check_vocabulary(const std::string& draft_path, const Tokenizer& draft, const std::string& target_path,
                        const Tokenizer& target) {
  const auto quoted = [](const Tokenizer& t, Token token) {
    const std::string text = t.piece(token, true);
    return first_invalid_utf8(text) == text.size() ? "'" + text + "'" : "bytes that are no text";
  };
  const int32_t shared = std::min(draft.size(), target.size());
  for (Token token = 0; token < shared; ++token)
    if (draft.piece(token, true) != target.piece(token, true))
      return input_error("--draft " + draft_path + " has another vocabulary than " + target_path + ": token " +
                         std::to_string(token) + " is " + quoted(draft, token) + " there and " + quoted(target, token) +
                         " here; a draft model needs the target's tokenizer");
  return {};
}

std::string TextStream::push(Token token) {
  pending_ += tokenizer_->piece(token, /*special=*/std::ranges::count(shown_, token) > 0);
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Head head = utf8_head(rest);
    if (head.kind == Utf8Head::Kind::kUnfinished) break;
    text += head.kind == Utf8Head::Kind::kCharacter ? rest.substr(0, head.length) : kReplacementCharacter;
    rest.remove_prefix(head.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string TextStream::finish() {
  const bool waiting = !pending_.empty();
  pending_.clear();
  return std::string(waiting ? kReplacementCharacter : "");
}

}  // namespace sluice
