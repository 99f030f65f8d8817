#include "model/file_identity.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "base/file.h"

namespace sluice {

namespace fs = std::filesystem;

namespace {

class Hasher {
 public:
  Hasher() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    SLUICE_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "libcrypto has SHA-256");
  }
  void add(std::span<const std::byte> bytes) {
    SLUICE_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1,
                 "libcrypto hashes what it is given");
  }
  Sha256 finish() {
    Sha256 hash;
    SLUICE_CHECK(EVP_DigestFinal_ex(context_.get(), hash.bytes.data(), nullptr) == 1, "once");
    return hash;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

Sha256 sha256_of(const std::string& text) { return sha256(std::as_bytes(std::span(text))); }

std::optional<Sha256> from_hex(std::string_view text) {
  Sha256 hash;
  if (text.size() != 2 * hash.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < hash.bytes.size(); ++i) {
    const char* at = text.data() + 2 * i;
    if (std::from_chars(at, at + 2, hash.bytes[i], 16).ptr != at + 2) return std::nullopt;
  }
  return hash;
}

// Files and what they hold, in one file that is read and written whole. Its lines are
//   IDENTITY SIZE MODIFIED CHANGED PATH
// between a line that says what it is and the SHA-256 of all before it, without which nothing in it counts.
class Cache {
 public:
  struct Entry {
    Sha256 identity;
    FileStamp stamp;
  };

  Cache() : path_(fs::path(cache_folder()) / "identities") { read(); }

  std::optional<Sha256> find(const std::string& file, const FileStamp& stamp) const {
    const auto at = entries_.find(file);
    return at != entries_.end() && at->second.stamp == stamp ? std::optional(at->second.identity) : std::nullopt;
  }

  // What is known of files that have gone or changed is dropped.
  void keep(const std::string& file, const Entry& entry) {
    std::erase_if(entries_, [](const auto& known) {
      const auto now = FileStamp::of(known.first);
      return !now || !(*now == known.second.stamp);
    });
    entries_[file] = entry;
    write();
  }

 private:
  static constexpr const char* kTitle = "sluice identities 1\n";

  void read() {
    std::ifstream in(path_, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t end = text.rfind('\n', text.size() < 2 ? 0 : text.size() - 2);
    if (!text.starts_with(kTitle) || !text.ends_with('\n') || end == std::string::npos) return;
    if (text.substr(end + 1) != sha256_of(text.substr(0, end + 1)).hex() + "\n") return;
    std::istringstream lines(text.substr(std::string(kTitle).size(), end + 1 - std::string(kTitle).size()));
    for (std::string hex, file; lines >> hex;) {
      Entry entry;
      lines >> entry.stamp.size >> entry.stamp.modified_ns >> entry.stamp.changed_ns;
      lines.ignore(1);
      if (const auto identity = from_hex(hex); std::getline(lines, file) && identity) {
        entry.identity = *identity;
        entries_[file] = entry;
      }
    }
  }

  // Whoever writes last has the say: what another program has found meanwhile is found again.
  void write() const {
    std::ostringstream out;
    out << kTitle;
    for (const auto& [file, entry] : entries_)
      out << entry.identity.hex() << ' ' << entry.stamp.size << ' ' << entry.stamp.modified_ns << ' '
          << entry.stamp.changed_ns << ' ' << file << '\n';
    const std::string text = out.str();
    std::error_code error;
    fs::create_directories(path_.parent_path(), error);
    (void)write_whole(path_.string(), text + sha256_of(text).hex() + '\n', /*durable=*/false);  // else found again
  }

  fs::path path_;
  std::map<std::string, Entry> entries_;
};

// Where a file can be found again, if its name can stand in a line.
std::optional<std::string> lasting_path(const OpenFile& file) {
  std::error_code error;
  const std::string path = fs::canonical(file.path(), error).string();
  if (error || path.find('\n') != std::string::npos) return std::nullopt;
  return path;
}

// A file that is written twice within a tick of the file system's clock has the same times both times.
bool has_settled(const FileStamp& stamp) {
  constexpr int64_t kSecond = 1'000'000'000;
  const auto now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
  return std::max(stamp.modified_ns, stamp.changed_ns) < now.count() - kSecond;
}

Result<Sha256> hash_of(const OpenFile& file) {
  constexpr size_t kPiece = size_t{1} << 20;
  std::vector<std::byte> piece(kPiece);
  Hasher hasher;
  for (uint64_t at = 0; at < file.stamp().size; at += piece.size()) {
    piece.resize(std::min<uint64_t>(kPiece, file.stamp().size - at));
    SLUICE_TRY_STATUS(file.read(at, piece));
    hasher.add(piece);
  }
  SLUICE_TRY_STATUS(file.check_unchanged());
  return hasher.finish();
}

}  // namespace

Sha256 sha256(std::span<const std::byte> bytes) {
  Hasher hasher;
  hasher.add(bytes);
  return hasher.finish();
}

Result<Sha256> file_identity(const OpenFile& file) {
  SLUICE_TRY_STATUS(file.check_unchanged());
  const FileStamp stamp = file.stamp();
  const auto path = lasting_path(file);
  const bool may_keep = path && has_settled(stamp) && FileStamp::of(*path) == stamp;
  if (!may_keep) return hash_of(file);
  Cache cache;
  if (const auto known = cache.find(*path, stamp)) return *known;
  SLUICE_TRY(const Sha256 identity, hash_of(file));
  cache.keep(*path, {identity, stamp});
  return identity;
}

Sha256 identity_of_all(std::span<const Sha256> files) {
  if (files.size() == 1) return files.front();
  Hasher hasher;
  for (const Sha256& file : files) hasher.add(std::as_bytes(std::span(file.bytes)));
  return hasher.finish();
}

}  // namespace sluice
