#include "train/corpus.h"

#include <spdlog/fmt/fmt.h>

#include <cstring>
#include <filesystem>
#include <span>

#include "base/file.h"
#include "base/hash.h"

namespace sluice {

namespace fs = std::filesystem;

namespace {

constexpr char kMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'T', '1'};
constexpr uint64_t kShardBytes = uint64_t{16} << 20;
constexpr uint32_t kLongestExample = 1 << 24;  // tokens; more is damage

// What stands before the tokens of a record.
struct RecordHeader {
  uint64_t checksum = 0;  // of the rest of the header and the tokens
  uint64_t id = 0;
  uint32_t n_tokens = 0, n_prompt = 0;
  float temperature = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(RecordHeader) == 32);

uint64_t checksum(const RecordHeader& header, std::span<const Token> tokens) {
  return fnv1a(std::as_bytes(tokens), fnv1a(std::as_bytes(std::span(&header, 1)).subspan(sizeof(header.checksum))));
}

const char* name(Split split) { return split == Split::kTrain ? "train" : "held-out"; }

std::string shard_path(const std::string& folder, Split split, int32_t number) {
  return (fs::path(folder) / fmt::format("{}-{:05}.tokens", name(split), number)).string();
}

std::string settings_path(const std::string& folder) { return (fs::path(folder) / "corpus.json").string(); }

tl::unexpected<Error> cannot_write(const std::string& path) {
  return runtime_error(path + ": can't be written (is the disk full?); what was stored before is kept");
}

struct ShardContents {
  std::vector<Example> examples;
  uint64_t sound_bytes = 0;  // up to the end of the last whole record
};

// Everything up to the first record that is not whole.
Result<ShardContents> read_shard(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[sizeof kMagic] = {};
  if (!file.read(magic, sizeof magic) || std::memcmp(magic, kMagic, sizeof magic) != 0)
    return input_error(path + ": is no shard of a corpus");
  ShardContents contents{.sound_bytes = sizeof magic};
  RecordHeader header;
  while (file.read(reinterpret_cast<char*>(&header), sizeof header)) {
    if (header.n_tokens > kLongestExample || header.n_prompt > header.n_tokens) break;
    Example example{.id = header.id,
                    .temperature = header.temperature,
                    .n_prompt = static_cast<int32_t>(header.n_prompt),
                    .tokens = std::vector<Token>(header.n_tokens)};
    const std::span<Token> tokens(example.tokens);
    if (!file.read(reinterpret_cast<char*>(tokens.data()), static_cast<std::streamsize>(tokens.size_bytes()))) break;
    if (checksum(header, tokens) != header.checksum) break;
    contents.sound_bytes += sizeof header + tokens.size_bytes();
    contents.examples.push_back(std::move(example));
  }
  return contents;
}

Result<nlohmann::json> read_settings(const std::string& folder) {
  std::ifstream file(settings_path(folder));
  auto settings = nlohmann::json::parse(file, nullptr, false);
  if (!settings.is_object())
    return input_error(settings_path(folder) + ": not there or damaged; make a corpus with sluice train data");
  return settings;
}

}  // namespace

int64_t count_answer_tokens(const std::vector<Example>& examples) {
  int64_t n = 0;
  for (const Example& example : examples) n += example.n_answer();
  return n;
}

Result<Corpus> Corpus::open(const std::string& folder) {
  Corpus corpus;
  SLUICE_TRY(corpus.settings, read_settings(folder));
  for (const Split split : {Split::kTrain, Split::kHeldOut}) {
    auto& examples = split == Split::kTrain ? corpus.train : corpus.held_out;
    for (int32_t number = 0; fs::exists(shard_path(folder, split, number)); ++number) {
      const std::string path = shard_path(folder, split, number);
      SLUICE_TRY(auto contents, read_shard(path));
      if (contents.sound_bytes < fs::file_size(path) && fs::exists(shard_path(folder, split, number + 1)))
        return input_error(path + ": is damaged after byte " + std::to_string(contents.sound_bytes));
      std::move(contents.examples.begin(), contents.examples.end(), std::back_inserter(examples));
    }
  }
  return corpus;
}

Result<Corpus> Corpus::open_all(const std::vector<std::string>& folders) {
  SLUICE_TRY(Corpus all, open(folders.front()));
  if (folders.size() == 1) return all;
  all.settings = nlohmann::json::array({all.settings});
  std::vector<std::vector<Example>> held_out = {all.held_out};
  for (const std::string& folder : std::span(folders).subspan(1)) {
    SLUICE_TRY(Corpus more, open(folder));
    all.settings.push_back(std::move(more.settings));
    std::move(more.train.begin(), more.train.end(), std::back_inserter(all.train));
    held_out.push_back(std::move(more.held_out));
  }
  // In turn, so that an evaluation of a few hears of all.
  size_t longest = 0;
  for (const auto& folder : held_out) longest = std::max(longest, folder.size());
  all.held_out.clear();
  for (size_t i = 0; i < longest; ++i)
    for (const auto& folder : held_out)
      if (i < folder.size()) all.held_out.push_back(folder[i]);
  return all;
}

Result<CorpusWriter> CorpusWriter::open(const std::string& folder, const nlohmann::json& settings) {
  CorpusWriter writer;
  writer.folder_ = folder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (fs::exists(settings_path(folder))) {
    SLUICE_TRY(const auto before, read_settings(folder));
    for (const auto& [key, value] : settings.items())
      if (!before.contains(key) || before[key] != value)
        return input_error(folder + ": was begun with " + key + " = " + before.value(key, nlohmann::json()).dump() +
                           ", not " + value.dump() + "; name another folder, or go on with the same options");
  } else {
    if (!fs::is_empty(folder, error) || error)
      return input_error(folder + ": is no corpus and not empty; name a new folder");
    if (write_whole(settings_path(folder), settings.dump(2) + '\n')) return cannot_write(settings_path(folder));
  }
  SLUICE_TRY_STATUS(writer.resume());
  return writer;
}

Status CorpusWriter::resume() {
  for (const Split split : {Split::kTrain, Split::kHeldOut}) {
    Shard& shard = shards_[static_cast<int>(split)];
    int32_t number = 0;
    for (; fs::exists(shard_path(folder_, split, number)); ++number) {
      const std::string path = shard_path(folder_, split, number);
      SLUICE_TRY(const auto contents, read_shard(path));
      for (const Example& example : contents.examples) ids_.insert(example.id);
      answer_tokens_ += count_answer_tokens(contents.examples);
      std::error_code error;
      if (contents.sound_bytes < fs::file_size(path)) fs::resize_file(path, contents.sound_bytes, error);
      if (error) return cannot_write(path);
      shard.bytes = contents.sound_bytes;
    }
    if (number == 0) {
      SLUICE_TRY_STATUS(begin_shard(split, 0));
      continue;
    }
    shard.number = number - 1;
    shard.path = shard_path(folder_, split, shard.number);
    shard.file.open(shard.path, std::ios::binary | std::ios::app);
    if (!shard.file) return cannot_write(shard.path);
  }
  return {};
}

Status CorpusWriter::begin_shard(Split split, int32_t number) {
  Shard& shard = shards_[static_cast<int>(split)];
  shard = {.path = shard_path(folder_, split, number), .bytes = sizeof kMagic, .number = number};
  shard.file.open(shard.path, std::ios::binary | std::ios::trunc);
  if (!shard.file.write(kMagic, sizeof kMagic) || !shard.file.flush()) return cannot_write(shard.path);
  return {};
}

Status CorpusWriter::append(Split split, const Example& example) {
  Shard* shard = &shards_[static_cast<int>(split)];
  if (shard->bytes >= kShardBytes) SLUICE_TRY_STATUS(begin_shard(split, shard->number + 1));
  const std::span<const Token> tokens(example.tokens);
  RecordHeader header{.id = example.id,
                      .n_tokens = static_cast<uint32_t>(tokens.size()),
                      .n_prompt = static_cast<uint32_t>(example.n_prompt),
                      .temperature = example.temperature};
  header.checksum = checksum(header, tokens);
  shard->file.write(reinterpret_cast<const char*>(&header), sizeof header);
  shard->file.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(tokens.size_bytes()));
  if (!shard->file.flush()) return cannot_write(shard->path);
  shard->bytes += sizeof header + tokens.size_bytes();
  ids_.insert(example.id);
  answer_tokens_ += example.n_answer();
  return {};
}

}  // namespace sluice
