#include "model/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "model/jinja/text.h"
#include "model/jinja/value.h"

namespace sluice::jinja {
namespace {

using Kind = Token::Kind;

// Line ends become \n, and one at the very end of the template is dropped.
std::string normalise(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string message) const { throw TemplateError{std::move(message), line_}; }
  bool looking_at(std::string_view s, size_t offset = 0) const {
    return std::string_view(source_).substr(std::min(at_ + offset, source_.size()), s.size()) == s;
  }
  char peek(size_t offset = 0) const { return at_ + offset < source_.size() ? source_[at_ + offset] : '\0'; }
  void advance(size_t n) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + at_ + n, '\n'));
    at_ += n;
  }
  void skip_space() {
    while (at_ < source_.size()) {
      const char32_t c = decode(std::string_view(source_).substr(at_, 4))[0];
      if (!is_space(c)) return;
      std::string bytes;
      append_code_point(bytes, c);
      advance(bytes.size());
    }
  }
  Token& add(Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), 0, 0, line_});
    return tokens_.back();
  }

  // Text up to the next tag, then the tag.
  void data() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) return text_until(source_.size(), '+', false);
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    const char next = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    text_until(tag, sign, next != '{');
    advance(sign == '-' || sign == '+' ? 3 : 2);
    if (next == '#') return comment();
    if (next == '%' && raw()) return;
    add(next == '{' ? Kind::kPrintBegin : Kind::kBlockBegin, "");
    tag_body(next == '{' ? Kind::kPrintEnd : Kind::kBlockEnd);
  }

  // Emits the text before a tag at `end`: `-` strips it, and a tag that isn't a print strips the blanks of its line.
  void text_until(size_t end, char sign, bool lstrip) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    std::string stripped(text);
    if (sign == '-') {
      stripped = strip(text, nullptr, false, true);
    } else if (lstrip && sign != '+') {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      const bool at_line_start = newline != std::string_view::npos || at_ == 0 || source_[at_ - 1] == '\n';
      if (at_line_start && strip(text.substr(line_begin), nullptr, true, false).empty()) stripped.resize(line_begin);
    }
    if (!stripped.empty()) add(Kind::kData, stripped);
    advance(end - at_);
  }

  // The end of a tag: `-` swallows the white space that follows, otherwise a line end does not come out.
  bool tag_end(std::string_view end, bool trims) {
    const bool minus = peek() == '-' && looking_at(end, 1), plus = trims && peek() == '+' && looking_at(end, 1);
    if (!minus && !plus && !looking_at(end)) return false;
    advance(end.size() + (minus || plus));
    if (minus) skip_space();
    if (!minus && !plus && trims && peek() == '\n') advance(1);
    return true;
  }

  void comment() {
    while (at_ < source_.size()) {
      if (tag_end("#}", true)) return;
      advance(1);
    }
    error("a comment without its end");
  }

  bool keyword_tag(std::string_view keyword, bool trims) {
    skip_space();
    if (!looking_at(keyword)) return false;
    advance(keyword.size());
    skip_space();
    return tag_end("%}", trims);
  }

  // {% raw %}: what follows is text up to {% endraw %}. Takes nothing when the tag is another one.
  bool raw() {
    const size_t begin = at_;
    const int line = line_;
    if (!keyword_tag("raw", false)) {
      at_ = begin;
      line_ = line;
      return false;
    }
    const size_t body = at_;
    const int body_line = line_;
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      at_ = tag;
      advance(sign == '-' || sign == '+' ? 3 : 2);
      if (!keyword_tag("endraw", true)) continue;
      const size_t after = at_;
      const int lines = static_cast<int>(std::count(source_.begin() + body, source_.begin() + after, '\n'));
      at_ = body;
      line_ = body_line;
      text_until(tag, sign, true);
      at_ = after;
      line_ = body_line + lines;
      return true;
    }
    error("raw without endraw");
  }

  void tag_body(Kind end) {
    std::string open;  // brackets that are not closed yet
    while (true) {
      skip_space();
      if (at_ >= source_.size()) return;  // the parser says what is missing
      if (open.empty() && tag_end(end == Kind::kPrintEnd ? "}}" : "%}", end == Kind::kBlockEnd)) {
        add(end, "");
        return;
      }
      const char c = peek();
      if (is_digit(c)) {
        number();
      } else if (is_word(c)) {
        size_t n = 1;
        while (is_word(peek(n))) ++n;
        add(Kind::kName, source_.substr(at_, n));
        advance(n);
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        operation(open);
      }
    }
  }

  void operation(std::string& open) {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators), [&](auto s) { return looking_at(s); });
    if (op == std::end(kOperators)) error("unexpected character '" + source_.substr(at_, 1) + "'");
    const char c = (*op)[0];
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : static_cast<char>(c + 2);
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) error(std::string("unexpected '") + c + "'");
      open.pop_back();
    }
    add(Kind::kOperator, std::string(*op));
    advance(op->size());
  }

  // Digits with single underscores between them, from `from`; 0 if there are none.
  size_t digits(size_t from) const {
    size_t n = from;
    while (is_digit(peek(n)) || (n > from && peek(n) == '_' && is_digit(peek(n + 1)))) ++n;
    return n - from;
  }

  void number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    size_t n = digits(0);
    bool is_float = false;
    if (!after_dot) {
      if (peek(n) == '.' && digits(n + 1)) {
        is_float = true;
        n += 1 + digits(n + 1);
      }
      const size_t sign = peek(n + 1) == '+' || peek(n + 1) == '-';
      if ((peek(n) | 32) == 'e' && digits(n + 1 + sign)) {
        is_float = true;
        n += 1 + sign + digits(n + 1 + sign);
      }
    }
    int base = 10;
    if (!is_float && peek() == '0') {
      const char mark = static_cast<char>(peek(1) | 32);
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
      n = base == 10 ? 1 : 2;
      while (base == 10 ? peek(n) == '0' || peek(n) == '_' : is_word(peek(n))) ++n;
    }
    std::string text = source_.substr(at_, n);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    Token& token = add(is_float ? Kind::kFloat : Kind::kInteger, text);
    const char* begin = text.data() + (base == 10 ? 0 : 2);
    const char* end = text.data() + text.size();
    if (is_float) {
      token.number = std::strtod(begin, nullptr);  // infinite beyond the range, as in Python
    } else if (const auto read = std::from_chars(begin, end, token.integer, base);
               read.ec != std::errc() || read.ptr != end) {
      error("the number " + text + " is out of range or malformed");
    }
    advance(n);
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) error("a string without its end");
    add(Kind::kString, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  std::string unescape(std::string_view s) const {
    std::string out;
    for (size_t i = 0; i < s.size(); ++i) {
      if (s[i] != '\\') {
        out += s[i];
        continue;
      }
      const char c = s[++i];
      static constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t letter = kLetters.find(c); letter != std::string_view::npos) {
        out += kMeanings[letter];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t size = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_code_point(out, code_point(s.substr(i + 1, size), size, 16));
        i += size;
      } else if (c >= '0' && c <= '7') {
        size_t size = 1;
        while (size < 3 && i + size < s.size() && s[i + size] >= '0' && s[i + size] <= '7') ++size;
        append_code_point(out, code_point(s.substr(i, size), size, 8));
        i += size - 1;
      } else if (c == 'N') {
        error("\\N{…} in a string is not supported");
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  char32_t code_point(std::string_view digits, size_t size, int base) const {
    uint32_t c = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), c, base);
    if (digits.size() != size || read.ptr != digits.data() + size) error("a broken escape in a string");
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) error("an escape in a string that names no character");
    return c;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(normalise(source)).run(); }

}  // namespace sluice::jinja
