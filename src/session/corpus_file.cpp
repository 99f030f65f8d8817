#include "session/corpus_file.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "model/utf8.h"
#include "session/policy.h"

namespace sluice {

Result<std::shared_ptr<const KnownText>> read_corpus(const std::string& path, const Tokenizer& tokenizer) {
  const std::string name = "--ngram-corpus " + path;
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, error))
    return input_error(name + ": there is no readable file of this name; give one of plain text");
  std::string text;
  std::string chunk(size_t{1} << 20, '\0');
  while (text.size() <= policy::kLongestCorpus &&
         (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0))
    text.append(chunk, 0, static_cast<size_t>(file.gcount()));
  if (file.bad()) return input_error(name + ": cannot be read");
  if (text.empty()) return input_error(name + ": the file is empty; it should hold text like what is to be written");
  if (text.size() > policy::kLongestCorpus)
    return input_error(name + ": longer than " + std::to_string(policy::kLongestCorpus >> 20) +
                       " MiB; take a part of it");
  if (const size_t at = first_invalid_utf8(text); at < text.size())
    return input_error(name + ": not UTF-8 text, byte " + std::to_string(at + 1) +
                       " of it belongs to no character; convert it, for instance with iconv");
  SLUICE_TRY(auto tokens, tokenizer.encode(text, /*add_special=*/false, /*parse_special=*/false));
  return std::make_shared<const KnownText>(std::move(tokens));
}

}  // namespace sluice
