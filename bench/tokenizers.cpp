// Checks our tokens against those that the models' own tokenizers give, as llama.cpp keeps them: for each vocabulary
// NAME.gguf of a folder texts in NAME.gguf.inp, and their tokens, a line each, in NAME.gguf.out. llama.cpp's source has
// them in its folder models; bench/build_llama fetches it.
//
//   sluice_tokenizers bench/out/llama/llama_cpp_python-0.3.36/vendor/llama.cpp/models
//
// Prints a Markdown table. Exit status: 0; 1 if the tokens of a vocabulary that is supported are other ones; 2 if the
// folder has no vocabulary.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "model/shards.h"
#include "model/tokenizer.h"
#include "model/vocabulary.h"

namespace {

using namespace sluice;
namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> texts_of(const std::string& all) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(separator, at), all.size());
    texts.push_back(all.substr(at, end - at));
    at = std::min(end + separator.size(), all.size());
  }
  return texts;
}

std::vector<std::vector<Token>> tokens_of(const std::string& all) {
  std::vector<std::vector<Token>> tokens;
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    tokens.emplace_back(std::istream_iterator<Token>(numbers), std::istream_iterator<Token>());
  }
  return tokens;
}

Result<Tokenizer> load(const std::string& path, const gguf::Header& header) {
  SLUICE_TRY(const VocabularyFacts facts, read_vocabulary(header));
  const gguf::Value& tokens = *header.find("tokenizer.ggml.tokens");
  return Tokenizer::load({path, static_cast<int32_t>(tokens.count), facts.splits_recursively});
}

// A row of the table; whether all is as it should be.
bool check(const fs::path& path) {
  const auto row = [&](const std::string& tokenizer, const std::string& found) {
    std::printf("| %s | %s | %s |\n", path.stem().string().substr(sizeof "ggml-vocab").c_str(), tokenizer.c_str(),
                found.c_str());
  };
  const auto shards = open_shards(path);
  if (!shards) return row("", shards.error().message), false;
  const gguf::Header& header = shards->front().header;
  const auto text = [&](const char* key) {
    const auto value = header.optional_string(key);
    return std::string(value ? value->value_or("") : "");
  };
  const std::string kind = text("tokenizer.ggml.model"), pre = text("tokenizer.ggml.pre");
  const std::string named = pre.empty() ? kind : kind + ", " + pre;
  const auto tokenizer = load(path, header);
  if (!tokenizer) return row(named, "refused: " + tokenizer.error().message), true;
  const auto texts = texts_of(contents(path.string() + ".inp"));
  const auto expected = tokens_of(contents(path.string() + ".out"));
  size_t same = 0;
  for (size_t i = 0; i < std::min(texts.size(), expected.size()); ++i) {
    const auto tokens = tokenizer->encode(texts[i], /*add_special=*/false, /*parse_special=*/false);
    same += tokens && *tokens == expected[i];
    if (!tokens || *tokens != expected[i])
      std::fprintf(stderr, "%s: other tokens for '%s'\n", path.c_str(), texts[i].c_str());
  }
  row(named, texts.empty() ? "loads; there are no texts"
                           : std::to_string(same) + " of " + std::to_string(texts.size()) + " texts");
  return same == texts.size() && texts.size() == expected.size();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> vocabularies;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(argc == 2 ? argv[1] : "", none))
    if (entry.path().filename().string().starts_with("ggml-vocab-") && entry.path().extension() == ".gguf")
      vocabularies.push_back(entry.path());
  if (vocabularies.empty()) return std::fprintf(stderr, "usage: sluice_tokenizers FOLDER, with vocabularies\n"), 2;
  std::ranges::sort(vocabularies);
  std::printf("| vocabulary | tokenizer | same tokens |\n|---|---|---|\n");
  bool all = true;
  for (const fs::path& path : vocabularies) all = check(path) && all;
  return all ? 0 : 1;
}
