#include "chat/chat_text.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <span>
#include <utility>

#include "chat/template_engine.h"
#include "model/utf8.h"

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

bool is_word(std::string_view text) {
  return utf8_head(text).length < text.size() && !std::all_of(text.begin(), text.end(), is_ascii_space);
}

// What may stand in, in this order. The engine cuts and counts bytes, so what stands for one byte should be one: a
// control character that is no white space to anybody and has no short escape in JSON.
struct Characters {
  uint32_t begin, end;
};
constexpr Characters kControls[] = {{0x01, 0x08}, {0x0E, 0x1C}, {0x7F, 0x80}};
constexpr Characters kOfThreeBytes[] = {{0xFDD0, 0xFDF0}, {0xE000, 0xF900}};  // noncharacters, private use
constexpr std::string_view kHexDigits = "0123456789abcdef";

// REQUIRES: of one byte or three in UTF-8.
std::string utf8_of(uint32_t character) {
  if (character < 0x80) return {static_cast<char>(character)};
  return {static_cast<char>(0xE0 | character >> 12), static_cast<char>(0x80 | (character >> 6 & 0x3F)),
          static_cast<char>(0x80 | (character & 0x3F))};
}

// As JSON writes it in ASCII.
std::string escape_of(uint32_t character) {
  std::string text = "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) text += kHexDigits[character >> shift & 0xF];
  return text;
}

// Characters of one byte and of three that occur, plain or escaped.
class UsedCharacters {
 public:
  void add(std::string_view text) {
    for (size_t at = 0; at < text.size(); ++at) {
      const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[at + i])); };
      if (byte(0) < 0x80) used_.set(byte(0));
      if ((byte(0) & 0xF0) == 0xE0 && at + 3 <= text.size())
        used_.set((byte(0) & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F));
      if (byte(0) == '\\' && at + 6 <= text.size()) add_escape(text.substr(at, 6));
    }
  }
  void add(uint32_t character) { used_.set(character); }
  bool contains(uint32_t character) const { return used_.test(character); }

 private:
  void add_escape(std::string_view text) {
    uint32_t character = 0;
    for (const char c : text.substr(2)) {
      const size_t digit = kHexDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
      if (digit == kHexDigits.npos) return;
      character = character << 4 | static_cast<uint32_t>(digit);
    }
    used_.set(character);
  }
  std::bitset<0x10000> used_;
};

// Conceals special texts in a conversation, and turns the stand-ins back.
class StandIns {
 public:
  StandIns(const Tokenizer& tokenizer, std::string_view template_source, const ChatTemplateInput& input)
      : tokenizer_(tokenizer), template_source_(template_source), input_(input) {}

  void conceal(std::string& text, const SpecialFinder& specials) {
    std::string result;
    for (size_t at = 0; at < text.size();) {
      const size_t length = utf8_head(std::string_view(text).substr(at)).length;
      bool is_special = false, in_any_text = false;
      specials.visit_at(text, at, [&](const SpecialText& special) {
        is_special = true;
        in_any_text = in_any_text || special.in_any_text;
      });
      const std::string_view character = std::string_view(text).substr(at, length);
      result += is_special ? stand_in(std::string(character), in_any_text) : character;
      at += length;
    }
    text = std::move(result);
  }

  void conceal(Json& value, const SpecialFinder& specials) {
    if (value.is_string()) conceal(value.get_ref<std::string&>(), specials);
    if (value.is_array())
      for (Json& item : value) conceal(item, specials);
    if (!value.is_object()) return;
    Json result = Json::object();
    for (auto& [key, item] : value.items()) {
      std::string name = key;
      conceal(name, specials);
      conceal(item, specials);
      result[name] = std::move(item);
    }
    value = std::move(result);
  }

  bool ran_out() const { return ran_out_; }

  // The text as it was. Between two parts libllama must not look for special texts.
  std::vector<std::string> turn_back(std::string_view text) const {
    std::vector<std::string> parts(1);
    for (size_t at = 0; at < text.size();) {
      const StandIn* stand_in = nullptr;
      size_t length = 1;
      for (const size_t form : {size_t{1}, size_t{3}, size_t{6}})
        if (const auto found = forms_.find(text.substr(at, form)); found != forms_.end())
          stand_in = &found->second, length = found->first.size();
      parts.back() += stand_in ? std::string_view(stand_in->character) : text.substr(at, 1);
      if (stand_in && stand_in->cuts) parts.emplace_back();
      at += length;
    }
    return parts;
  }
  bool occur_in(std::string_view text) const {
    return std::any_of(forms_.begin(), forms_.end(),
                       [&](const auto& form) { return text.find(form.first) != text.npos; });
  }
  // One that is in no token of the vocabulary, but perhaps one of its own. REQUIRES: there is one.
  const std::string& any() const { return given_.begin()->second; }

 private:
  struct StandIn {
    std::string character;  // for which it stands
    bool cuts;              // the special text is found even where special tokens are not parsed
  };

  const std::string& stand_in(const std::string& character, bool cuts) {
    std::string& text = given_[{character, cuts}];
    if (!text.empty()) return text;
    const uint32_t one = unused(character.size());
    ran_out_ = ran_out_ || one == 0;
    text = ran_out_ ? character : utf8_of(one);
    if (!ran_out_) {
      forms_.emplace(text, StandIn{character, cuts});
      forms_.emplace(escape_of(one), StandIn{character, cuts});
    }
    return text;
  }

  // A character that occurs nowhere, if possible of that many bytes; 0 if there is none.
  uint32_t unused(size_t bytes) {
    if (std::exchange(first_, false)) find_used();
    const auto look = [&](std::span<const Characters> ranges) -> uint32_t {
      for (const auto& [begin, end] : ranges)
        for (uint32_t one = begin; one < end; ++one)
          if (!used_.contains(one)) return one;
      return 0;
    };
    uint32_t one = bytes == 1 ? look(kControls) : 0;
    if (one == 0) one = look(kOfThreeBytes);
    used_.add(one);
    return one;
  }

  void find_used() {
    const auto json = [&](const Json& value) { used_.add(value.dump(-1, ' ', false, Json::error_handler_t::replace)); };
    for (const ChatMessage& message : input_.messages) {
      used_.add(message.role);
      used_.add(message.content);
      json(message.extra);
    }
    json(input_.tools);
    json(input_.extra);
    used_.add(input_.bos_token);
    used_.add(input_.eos_token);
    used_.add(template_source_);
    for (Token token = 0; token < tokenizer_.size(); ++token)
      if (const std::string piece = tokenizer_.piece(token, true); piece.size() > 1) used_.add(piece);
  }

  const Tokenizer& tokenizer_;
  std::string_view template_source_;
  const ChatTemplateInput& input_;
  UsedCharacters used_;
  bool first_ = true;
  bool ran_out_ = false;
  std::map<std::pair<std::string, bool>, std::string> given_;
  std::map<std::string, StandIn, std::less<>> forms_;
};

// Adds the tokens of a text as the continuation of another one. A SentencePiece vocabulary may put a space before a
// text: so there a stand-in leads it, which no token joins with what follows, and goes again.
Status add_continuation(const Tokenizer& tokenizer, const StandIns& stand_ins, const std::string& text,
                        std::vector<Token>& tokens) {
  SLUICE_TRY(const auto letter, tokenizer.encode("a", false, false));
  const std::string lead = tokenizer.decode(letter) == "a" ? "" : stand_ins.any();
  SLUICE_TRY(const auto before, tokenizer.encode(lead, false, false));
  SLUICE_TRY(const auto all, tokenizer.encode(lead + text, false, false));
  tokens.insert(tokens.end(), all.begin() + static_cast<ptrdiff_t>(before.size()), all.end());
  return {};
}

// The plain text between two special tokens.
Status add_plain(const Tokenizer& tokenizer, const StandIns& stand_ins, std::string_view text,
                 std::vector<Token>& tokens) {
  const auto parts = stand_ins.turn_back(text);
  SLUICE_TRY(const auto begin, tokenizer.encode(parts.front(), false, false));
  tokens.insert(tokens.end(), begin.begin(), begin.end());
  for (const std::string& part : std::span(parts).subspan(1))
    if (!part.empty()) SLUICE_TRY_STATUS(add_continuation(tokenizer, stand_ins, part, tokens));
  return {};
}

// What libllama makes of a text with special tokens, but for the concealed ones.
Result<std::vector<Token>> encode_split(const Tokenizer& tokenizer, const SpecialFinder& specials,
                                        const StandIns& stand_ins, std::string_view text) {
  std::vector<Token> tokens;
  size_t begin = 0;
  for (const auto& match : specials.split(text)) {
    SLUICE_TRY_STATUS(add_plain(tokenizer, stand_ins, text.substr(begin, match.begin - begin), tokens));
    tokens.push_back(match.special->token);
    begin = match.end;
  }
  SLUICE_TRY_STATUS(add_plain(tokenizer, stand_ins, text.substr(begin), tokens));
  return tokens;
}

}  // namespace

ChatText::ChatText(const Tokenizer& tokenizer, std::string_view template_source)
    : tokenizer_(&tokenizer),
      template_source_(template_source),
      all_(tokenizer.specials(), [](const SpecialText&) { return true; }),
      anybodys_(tokenizer.specials(),
                [&](const SpecialText& special) {
                  return !special.in_any_text ||
                         (is_word(special.text) && template_source.find(special.text) != template_source.npos);
                }),
      assistants_(tokenizer.specials(), [](const SpecialText& special) { return !special.in_any_text; }) {}

Result<std::vector<Token>> ChatText::encode(ChatTemplateInput input, const Render& render) const {
  SLUICE_TRY_STATUS(check(input));
  const ChatTemplateInput original = input;
  StandIns stand_ins(*tokenizer_, template_source_, original);
  for (ChatMessage& message : input.messages) {
    const SpecialFinder& specials = message.role == "assistant" ? assistants_ : anybodys_;
    stand_ins.conceal(message.role, specials);
    stand_ins.conceal(message.content, specials);
    stand_ins.conceal(message.extra, specials);
  }
  stand_ins.conceal(input.tools, anybodys_);
  if (stand_ins.ran_out())
    return input_error(
        "the conversation holds texts of special tokens and every control and private-use character, so that none is "
        "left to keep them apart from the chat template's own");
  SLUICE_TRY(const std::string text, render(input));
  if (!stand_ins.occur_in(text)) return tokenizer_->encode(text, /*add_special=*/false, /*parse_special=*/true);
  return encode_split(*tokenizer_, all_, stand_ins, text);
}

}  // namespace sluice
