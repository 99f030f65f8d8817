#include "pipeline/memo.h"

#include <array>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace sluice {

namespace {

constexpr std::array<char, 8> kMagic = {'s', 'l', 'u', 'i', 'c', 'e', 'm', '1'};

uint64_t mix(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

template <class T>
void put(std::ofstream& file, const T& value) {
  file.write(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class T>
bool get(std::ifstream& file, T& value) {
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&value), sizeof value));
}

}  // namespace

PathKey PathKey::with(uint64_t more) const {
  return {mix(high * 0x9E3779B97F4A7C15ull + more + 1), mix((low ^ mix(more)) + 0xD1B54A32D192ED03ull)};
}

PathKey PathKey::with(const SamplingParams& s) const {
  if (s.temperature == 0.0f && s.repeat_penalty == 1.0f && s.logit_bias.empty()) return with(uint64_t{0});
  PathKey key = with(uint64_t{1});
  for (const float value : {s.temperature, s.top_p, s.min_p, s.repeat_penalty})
    key = key.with(std::bit_cast<uint32_t>(value));
  for (const uint64_t value : {static_cast<uint64_t>(s.top_k), s.seed, static_cast<uint64_t>(s.choice)})
    key = key.with(value);
  for (const auto& [token, bias] : s.logit_bias)
    key = key.with(static_cast<uint64_t>(token)).with(std::bit_cast<uint32_t>(bias));
  return key;
}

const Draw* Memo::find_draw(PathKey key) const {
  const auto at = draws_.find(key);
  return at == draws_.end() ? nullptr : &at->second;
}

const TopLogits* Memo::find_top(PathKey key) const {
  const auto at = tops_.find(key);
  return at == tops_.end() ? nullptr : &at->second;
}

Status Memo::load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  const auto damaged = [&] {
    return input_error("--memo " + path + ": not a memo of this version, or cut off; remove it to begin anew");
  };
  std::array<char, 8> magic{};
  uint64_t n_draws = 0, n_tops = 0;
  if (!get(file, magic) || magic != kMagic || !get(file, n_draws) || !get(file, n_tops)) return damaged();
  for (uint64_t i = 0; i < n_draws; ++i) {
    PathKey key;
    Draw draw;
    if (!get(file, key) || !get(file, draw)) return damaged();
    keep(key, draw);
  }
  for (uint64_t i = 0; i < n_tops; ++i) {
    PathKey key;
    TopLogits top;
    uint32_t count = 0;
    if (!get(file, key) || !get(file, top.log_sum) || !get(file, count) || count > TopLogits::kKept) return damaged();
    top.entries.resize(count);
    for (auto& entry : top.entries)
      if (!get(file, entry)) return damaged();
    keep(key, std::move(top));
  }
  changed_ = false;
  return {};
}

Status Memo::save(const std::string& path) {
  if (!changed_) return {};
  const std::string unfinished = path + ".tmp";
  std::ofstream file(unfinished, std::ios::binary);
  put(file, kMagic);
  put(file, static_cast<uint64_t>(draws_.size()));
  put(file, static_cast<uint64_t>(tops_.size()));
  for (const auto& [key, draw] : draws_) {
    put(file, key);
    put(file, draw);
  }
  for (const auto& [key, top] : tops_) {
    put(file, key);
    put(file, top.log_sum);
    put(file, static_cast<uint32_t>(top.entries.size()));
    for (const auto& entry : top.entries) put(file, entry);
  }
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(unfinished, path, error);
  if (!file || error) {
    std::filesystem::remove(unfinished, error);
    return runtime_error("--memo " + path + ": cannot be written; is the disk full?");
  }
  changed_ = false;
  return {};
}

}  // namespace sluice
