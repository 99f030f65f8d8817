#include "pipeline/memo.h"

#include <array>
#include <bit>
#include <cstdio>
#include <fstream>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/hash.h"

namespace sluice {

namespace {

constexpr std::array<char, 8> kMagic = {'s', 'l', 'u', 'i', 'c', 'e', 'm', '3'};

// Adds to the FNV-1a of all that was written or read: a damaged file must not become somebody's tokens.
void add(uint64_t& sum, const char* bytes, size_t n) { sum = fnv1a(std::as_bytes(std::span(bytes, n)), sum); }

struct Writer {
  std::FILE* file;  // none: it can't be written
  uint64_t sum = kHashOfNothing;
  template <class T>
  void put(const T& value) {
    const char* bytes = reinterpret_cast<const char*>(&value);
    if (file != nullptr) std::fwrite(bytes, 1, sizeof value, file);
    add(sum, bytes, sizeof value);
  }
};

struct Reader {
  std::ifstream file;
  uint64_t sum = kHashOfNothing;
  template <class T>
  bool get(T& value) {
    char* bytes = reinterpret_cast<char*>(&value);
    if (!file.read(bytes, sizeof value)) return false;
    add(sum, bytes, sizeof value);
    return true;
  }
};

}  // namespace

PathKey PathKey::with(uint64_t more) const {
  return {mixed(high * 0x9E3779B97F4A7C15ull + more + 1), mixed((low ^ mixed(more)) + 0xD1B54A32D192ED03ull)};
}

PathKey PathKey::with(const SamplingParams& s) const {
  const bool counts = s.presence_penalty != 0.0f || s.frequency_penalty != 0.0f;
  const bool plain = s.repeat_penalty == 1.0f && !counts && s.logit_bias.empty() && s.grammar.empty();
  if (s.temperature == 0.0f && plain) return with(uint64_t{0});
  PathKey key = with(uint64_t{1});
  for (const float value : {s.temperature, s.top_p, s.min_p, s.repeat_penalty})
    key = key.with(std::bit_cast<uint32_t>(value));
  for (const uint64_t value : {static_cast<uint64_t>(s.top_k), s.seed, static_cast<uint64_t>(s.choice)})
    key = key.with(value);
  if (counts) {
    for (const float value : {s.presence_penalty, s.frequency_penalty})
      key = key.with((uint64_t{1} << 32) + std::bit_cast<uint32_t>(value));  // unlike a bias
    key = key.with(static_cast<uint64_t>(s.answer_from));
  }
  if (!s.grammar.empty())
    key = key.with(fnv1a(std::as_bytes(std::span(s.grammar.rules))))
              .with(fnv1a(std::as_bytes(std::span(s.grammar.begin))))
              .with(static_cast<uint64_t>(s.answer_from));
  for (const auto& [token, bias] : s.logit_bias)
    key = key.with(static_cast<uint64_t>(token)).with(std::bit_cast<uint32_t>(bias));
  return key;
}

Memo::Memo(Memo&& other) noexcept
    : draws_(std::move(other.draws_)), tops_(std::move(other.tops_)), changed_(other.changed_) {}

const Draw* Memo::find_draw(PathKey key) const {
  const std::lock_guard lock(mutex_);
  const auto at = draws_.find(key);
  return at == draws_.end() ? nullptr : &at->second;
}

const TopLogits* Memo::find_top(PathKey key) const {
  const std::lock_guard lock(mutex_);
  const auto at = tops_.find(key);
  return at == tops_.end() ? nullptr : &at->second;
}

void Memo::keep(PathKey key, const Draw& draw) {
  const std::lock_guard lock(mutex_);
  draws_.insert_or_assign(key, draw);
  changed_ = true;
}

void Memo::keep(PathKey key, TopLogits top) {
  const std::lock_guard lock(mutex_);
  tops_.insert_or_assign(key, std::move(top));
  changed_ = true;
}

Status Memo::load(const std::string& path) {
  Reader in{.file = std::ifstream(path, std::ios::binary)};
  if (!in.file) return {};
  const auto damaged = [&] {
    return input_error("--memo " + path + ": not a memo of this version, or damaged; remove it to begin anew");
  };
  std::array<char, 8> magic{};
  uint64_t n_draws = 0, n_tops = 0;
  if (!in.get(magic) || magic != kMagic || !in.get(n_draws) || !in.get(n_tops)) return damaged();
  Memo read;
  for (uint64_t i = 0; i < n_draws; ++i) {
    PathKey key;
    Draw draw;
    if (!in.get(key) || !in.get(draw)) return damaged();
    read.keep(key, draw);
  }
  for (uint64_t i = 0; i < n_tops; ++i) {
    PathKey key;
    TopLogits top;
    uint32_t count = 0;
    if (!in.get(key) || !in.get(top.log_sum) || !in.get(count) || count > TopLogits::kKept) return damaged();
    top.entries.resize(count);
    for (auto& entry : top.entries)
      if (!in.get(entry)) return damaged();
    read.keep(key, std::move(top));
  }
  const uint64_t sum = in.sum;
  uint64_t expected = 0;
  if (!in.get(expected) || expected != sum || in.file.peek() != std::ifstream::traits_type::eof()) return damaged();
  const std::lock_guard lock(mutex_);
  draws_.merge(read.draws_);
  tops_.merge(read.tops_);
  return {};
}

Status Memo::save(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (!changed_) return {};
  WholeFile file(path);
  Writer out{.file = file.stream()};
  out.put(kMagic);
  out.put(static_cast<uint64_t>(draws_.size()));
  out.put(static_cast<uint64_t>(tops_.size()));
  for (const auto& [key, draw] : draws_) {
    out.put(key);
    out.put(draw);
  }
  for (const auto& [key, top] : tops_) {
    out.put(key);
    out.put(top.log_sum);
    out.put(static_cast<uint32_t>(top.entries.size()));
    for (const auto& entry : top.entries) out.put(entry);
  }
  out.put(uint64_t{out.sum});
  if (const auto error = file.commit(/*durable=*/false))
    return runtime_error("--memo " + path + ": cannot be written: " + error.message() +
                         "; name a file on a disk with room");
  changed_ = false;
  return {};
}

}  // namespace sluice
