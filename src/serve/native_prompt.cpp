#include "serve/native_prompt.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "serve/json_values.h"
#include "serve/policy.h"

namespace sluice {

namespace {

using json = nlohmann::ordered_json;
using Tokens = std::vector<Token>;

void append(Tokens& all, const Tokens& more) { all.insert(all.end(), more.begin(), more.end()); }

ApiResult<Tokens> encode(const std::string& text, const std::string& param, const Tokenizer& tokenizer,
                         bool add_special, bool parse_special) {
  auto tokens = tokenizer.encode(text, add_special, parse_special);
  if (!tokens) return bad_parameter(param, tokens.error().message);
  return std::move(*tokens);
}

ApiResult<Tokens> read_mixed(const json& parts, const Tokenizer& tokenizer) {
  Tokens tokens;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].is_string()) {
      SLUICE_API_TRY(const Tokens more, encode(parts[i].get<std::string>(), "prompt", tokenizer, i == 0, true));
      append(tokens, more);
    } else {
      SLUICE_API_TRY(const Token token, read_whole(parts[i], "prompt", 0, tokenizer.size() - 1));
      tokens.push_back(token);
    }
  }
  return tokens;
}

bool is_prompt(const json& part) { return part.is_array() || part.is_object(); }

bool holds_several(const json& prompt) {
  return prompt.is_array() && prompt.size() > 1 &&
         (std::ranges::any_of(prompt, is_prompt) || std::ranges::all_of(prompt, &json::is_string));
}

// The text of a parameter, in which markers are plain text.
ApiResult<Tokens> read_plain(const json& object, const char* name, const std::string& param,
                             const Tokenizer& tokenizer) {
  if (!object[name].is_string()) return bad_parameter(param, "must be a text");
  return encode(object[name].get<std::string>(), param, tokenizer, false, false);
}

// Other files, each under its name.
ApiResult<Tokens> read_extra(const json& files, const Tokenizer& tokenizer) {
  const FillInTokens marks = tokenizer.fill_in();
  Tokens tokens;
  const auto head = [&](const std::string& name) -> ApiStatus {
    const bool marked = marks.file != kNoToken;
    if (marked) tokens.push_back(marks.file);
    SLUICE_API_TRY(const Tokens line, encode(marked ? name + "\n" : "\n\n--- " + name + " ---\n\n", "input_extra",
                                             tokenizer, false, false));
    append(tokens, line);
    return {};
  };
  if (marks.repository != kNoToken) {
    tokens.push_back(marks.repository);
    SLUICE_API_TRY(const Tokens line, encode("project\n", "input_extra", tokenizer, false, false));
    append(tokens, line);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string at = "input_extra[" + std::to_string(i) + "]";
    const json& file = files[i];
    if (!file.is_object() || !is_given(file, "text")) return bad_parameter(at, R"(must be {"filename": …, "text": …})");
    if (is_given(file, "filename") && !file["filename"].is_string())
      return bad_parameter(at + ".filename", "must be a text");
    SLUICE_API_TRY_STATUS(head(is_given(file, "filename") ? file["filename"].get<std::string>() : "file"));
    SLUICE_API_TRY(const Tokens text, read_plain(file, "text", at + ".text", tokenizer));
    append(tokens, text);
  }
  if (marks.file != kNoToken) SLUICE_API_TRY_STATUS(head("filename"));
  return tokens;
}

void keep_last(Tokens& tokens, size_t n) {
  if (tokens.size() > n) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(n));
}

}  // namespace

ApiResult<Tokens> read_native_prompt(const json& prompt, const Tokenizer& tokenizer) {
  if (prompt.is_string()) return encode(prompt.get<std::string>(), "prompt", tokenizer, true, true);
  if (prompt.is_object()) {
    SLUICE_API_TRY_STATUS(check_members(prompt, "prompt", {"prompt_string"}));
    SLUICE_API_TRY(const std::string text, read_member(prompt, "prompt_string", "prompt"));
    return encode(text, "prompt", tokenizer, true, true);
  }
  if (!prompt.is_array()) return bad_parameter("prompt", "must be a text, or a list of texts and token ids");
  if (prompt.size() == 1 && is_prompt(prompt.front())) return read_native_prompt(prompt.front(), tokenizer);
  if (holds_several(prompt))
    return bad_parameter("prompt", "holds too many: there may be " + std::to_string(policy::kMostPrompts));
  return read_mixed(prompt, tokenizer);
}

std::vector<json> take_prompts(json& body) {
  if (!is_given(body, "prompt") || !holds_several(body["prompt"]) || body["prompt"].size() > policy::kMostPrompts)
    return {};
  json prompts = std::exchange(body["prompt"], nullptr);
  return std::move(prompts.get_ref<json::array_t&>());
}

ApiResult<Tokens> read_infill_prompt(const json& body, const Tokenizer& tokenizer, int32_t context) {
  for (const char* param : {"input_prefix", "input_suffix"})
    if (!is_given(body, param)) return bad_parameter(param, "is missing");
  const FillInTokens marks = tokenizer.fill_in();
  if (marks.prefix == kNoToken || marks.suffix == kNoToken || marks.middle == kNoToken)
    return bad_parameter("input_prefix",
                         "this model's vocabulary has no tokens for what stands before and after a gap");
  if (is_given(body, "input_extra") && !body["input_extra"].is_array())
    return bad_parameter("input_extra", R"(must be a list of {"filename": …, "text": …})");
  SLUICE_API_TRY(Tokens extra, read_extra(body.value("input_extra", json::array()), tokenizer));
  SLUICE_API_TRY(Tokens before, read_plain(body, "input_prefix", "input_prefix", tokenizer));
  SLUICE_API_TRY(Tokens after, read_plain(body, "input_suffix", "input_suffix", tokenizer));
  if (is_given(body, "prompt")) {
    SLUICE_API_TRY(const Tokens begun, read_plain(body, "prompt", "prompt", tokenizer));
    append(before, begun);
  }
  const size_t quarter = static_cast<size_t>(context) / 4;  // one is left for the answer
  after.resize(std::min(after.size(), quarter / 2));
  keep_last(before, 2 * quarter - after.size());
  keep_last(extra, 3 * quarter - after.size() - before.size());
  Tokens all = tokenizer.adds_bos() ? Tokens{tokenizer.bos()} : Tokens{};
  append(all, extra);
  all.push_back(marks.prefix);
  append(all, before);
  all.push_back(marks.suffix);
  append(all, after);
  all.push_back(marks.middle);
  return all;
}

bool is_infill_input(std::string_view name) {
  return name == "input_prefix" || name == "input_suffix" || name == "input_extra";
}

}  // namespace sluice
