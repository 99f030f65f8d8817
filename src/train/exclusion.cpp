#include "train/exclusion.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

namespace sluice {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || byte >= 0x80)  // letters beyond ASCII stay as they are
      words.back() += static_cast<char>(std::tolower(byte));
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

std::string join(std::span<const std::string> words) {
  std::string text;
  for (const auto& word : words) text += word + ' ';
  return text;
}

Result<std::vector<std::string>> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const auto& path : paths) {
    std::error_code error;
    const size_t before = files.size();
    if (fs::is_directory(path, error)) {
      for (const auto& entry : fs::directory_iterator(path, error))
        if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
    } else if (fs::is_regular_file(path, error)) {
      files.push_back(path);
    }
    if (files.size() == before) return input_error("--exclude " + path + ": no .jsonl file is there");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Result<Exclusion> Exclusion::load(const std::vector<std::string>& paths) {
  Exclusion exclusion;
  SLUICE_TRY(const auto files, files_of(paths));
  for (const auto& path : files) {
    std::ifstream file(path);
    if (!file) return input_error("--exclude " + path + ": can't be read");
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      const auto j = nlohmann::json::parse(line, nullptr, false);
      if (!j.is_object() || !j.contains("turns") || !j["turns"].is_array()) continue;
      for (const auto& turn : j["turns"])
        if (turn.is_string())
          exclusion.add(fs::path(path).filename().string() + ":" + std::to_string(number), turn.get<std::string>());
    }
  }
  if (!paths.empty() && exclusion.size() == 0)
    return input_error("--exclude " + paths.front() + ": holds no question (a list \"turns\" in each line)");
  return exclusion;
}

void Exclusion::add(std::string name, std::string_view question) {
  const auto words = words_of(question);
  const size_t index = names_.size();
  names_.push_back(std::move(name));
  if (words.size() < kShortest) {
    whole_.emplace(join(words), index);
    return;
  }
  const size_t length = std::min(kRun, words.size());
  lengths_.insert(length);
  for (size_t i = 0; i + length <= words.size(); ++i)
    runs_[length].emplace(join(std::span(words).subspan(i, length)), index);
}

const std::string* Exclusion::find(std::string_view text) const {
  const auto words = words_of(text);
  if (const auto it = whole_.find(join(words)); it != whole_.end()) return &names_[it->second];
  for (const size_t length : lengths_) {
    const auto& runs = runs_.at(length);
    for (size_t i = 0; i + length <= words.size(); ++i)
      if (const auto it = runs.find(join(std::span(words).subspan(i, length))); it != runs.end())
        return &names_[it->second];
  }
  return nullptr;
}

}  // namespace sluice
