#include "transport/weight_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <thread>
#include <utility>

#include "model/file_identity.h"

namespace sluice {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMostFileBytes = uint64_t{1} << 42;
constexpr size_t kMostFiles = 512;
constexpr const char *kUsed = "/used", *kFetching = "/fetching";

std::string gigabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

fs::path models_of(const WeightCache& cache) { return fs::path(cache.folder) / "weights"; }

// On the disk, holes not counted.
uint64_t bytes_of_folder(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    struct stat about {};
    if (::stat(at->path().c_str(), &about) == 0) bytes += static_cast<uint64_t>(about.st_blocks) * 512;
  }
  return bytes;
}

// Who opens it meanwhile begins with an empty one.
void remove_folder(const fs::path& folder) {
  const fs::path going = folder.parent_path() / ("removed-" + folder.filename().string());
  std::error_code error;
  fs::remove_all(going, error);
  fs::rename(folder, going, error);
  fs::remove_all(error ? folder : going, error);
}

// Those that were not used for longest first.
std::vector<fs::path> folders_of(const WeightCache& cache) {
  std::vector<std::pair<fs::file_time_type, fs::path>> folders;
  std::error_code error, ignored;
  for (fs::directory_iterator at(models_of(cache), error), end; !error && at != end; at.increment(error))
    if (at->is_directory(ignored)) folders.emplace_back(fs::last_write_time(at->path(), ignored), at->path());
  std::ranges::sort(folders);
  std::vector<fs::path> paths;
  for (auto& [time, path] : folders) paths.push_back(std::move(path));
  return paths;
}

bool is_whole(const WeightsOffered::File& file) {
  const auto n_blocks = (file.bytes + kWeightBlockBytes - 1) / kWeightBlockBytes;
  return file.bytes > 0 && file.bytes <= kMostFileBytes && file.blocks.size() == file.hashes.size() &&
         std::ranges::adjacent_find(file.blocks, std::greater_equal()) == file.blocks.end() &&
         (file.blocks.empty() || file.blocks.back() < n_blocks);
}

}  // namespace

std::unique_ptr<FileLock> FileLock::try_take(const std::string& path, Kind kind) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  struct stat locked {};
  struct stat there {};
  if (::flock(fd, (kind == Kind::kAlone ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0 && ::fstat(fd, &locked) == 0 &&
      ::stat(path.c_str(), &there) == 0 && locked.st_ino == there.st_ino)
    return std::unique_ptr<FileLock>(new FileLock(fd));
  ::close(fd);
  return nullptr;
}
FileLock::~FileLock() { ::close(fd_); }

struct WeightStore::Descriptor {
  explicit Descriptor(const std::string& path) : fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  const int fd;
};

Result<WeightStore> WeightStore::open(const WeightCache& cache, const Sha256& identity, const WeightsOffered& offered,
                                      const std::function<bool()>& given_up) {
  WeightStore store;
  store.cache_ = cache;
  store.folder_ = (models_of(cache) / identity.hex()).string();
  if (offered.files.empty() || offered.files.size() > kMostFiles || !std::ranges::all_of(offered.files, is_whole))
    return runtime_error("it was offered what is no model; do all hosts run the same release?");
  std::error_code error;
  fs::create_directories(store.folder_, error);
  if (error) return store.failed(error.message());
  store.files_.resize(offered.files.size());
  SLUICE_TRY_STATUS(store.lock(given_up));
  SLUICE_TRY_STATUS(store.open_files(offered));
  fs::last_write_time(store.folder_, fs::file_time_type::clock::now(), error);  // used now
  return store;
}

Status WeightStore::lock(const std::function<bool()>& given_up) {
  const auto take = [&](std::unique_ptr<FileLock>& lock, const char* name, FileLock::Kind kind) -> Status {
    while (!(lock = FileLock::try_take(folder_ + name, kind))) {
      std::error_code ignored;
      fs::create_directories(folder_, ignored);  // somebody may have made room by it
      if (::access(folder_.c_str(), W_OK) != 0) return failed(std::strerror(errno));
      if (given_up()) return runtime_error("given up");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return {};
  };
  SLUICE_TRY_STATUS(take(used_, kUsed, FileLock::Kind::kShared));
  return take(fetching_, kFetching, FileLock::Kind::kAlone);
}

Status WeightStore::open_files(const WeightsOffered& offered) {
  for (size_t i = 0; i < files_.size(); ++i) {
    File& file = files_[i];
    const WeightsOffered::File& its = offered.files[i];
    file.bytes = its.bytes;
    file.descriptor = std::make_shared<Descriptor>(file_path(i));
    struct stat about {};
    if (file.descriptor->fd < 0 || ::fstat(file.descriptor->fd, &about) != 0) return failed(std::strerror(errno));
    if (static_cast<uint64_t>(about.st_size) == file.bytes) {
      file.known = BlockHashes::load(blocks_path(i));
    } else {
      // What is known of another file must not be taken for this one's, whenever the program dies.
      if (::unlink(blocks_path(i).c_str()) != 0 && errno != ENOENT) return failed(std::strerror(errno));
      if (::ftruncate(file.descriptor->fd, 0) != 0 ||
          ::ftruncate(file.descriptor->fd, static_cast<off_t>(file.bytes)) != 0)
        return failed(std::strerror(errno));
    }
    for (size_t b = 0; b < its.blocks.size(); ++b)
      if (file.known.find(its.blocks[b]) != its.hashes[b])
        missing_.push_back({.file = static_cast<uint32_t>(i),
                            .block = its.blocks[b],
                            .bytes = bytes_of_block(file.bytes, kWeightBlockBytes, its.blocks[b]),
                            .hash = its.hashes[b]});
  }
  return {};
}

uint64_t WeightStore::missing_bytes() const {
  uint64_t bytes = 0;
  for (const Block& block : missing_) bytes += block.bytes;
  return bytes;
}

Status WeightStore::make_room() const {
  const uint64_t needed = missing_bytes();
  std::error_code error;
  if (cache_.bytes > 0) {
    const auto most = static_cast<uint64_t>(cache_.bytes);
    uint64_t kept = bytes_kept(cache_);
    for (const fs::path& other : folders_of(cache_)) {
      if (kept + needed <= most) break;
      const auto unused = FileLock::try_take(other.string() + kUsed, FileLock::Kind::kAlone);
      if (!unused) continue;  // this one itself among them
      kept -= std::min(kept, bytes_of_folder(other));
      remove_folder(other);
    }
    if (kept + needed > most)
      return runtime_error("its part needs " + gigabytes(needed) + " more in " + cache_.folder + ", where " +
                           gigabytes(kept) + " are in use and --cache-size allows " + gigabytes(most) +
                           ": start it with a larger one, or copy the file to a folder of its --models");
  }
  const auto space = fs::space(folder_, error);
  if (!error && space.available < needed)
    return runtime_error("its part needs " + gigabytes(needed) + " more in " + cache_.folder + ", and its disk has " +
                         gigabytes(space.available) +
                         ": make room there, start it with --cache on another disk, or give it fewer layers by --cuts");
  return {};
}

Status WeightStore::put(const Block& block, const WeightBlock& came) {
  const auto bytes = std::as_bytes(std::span(came.bytes));
  if (came.file != block.file || came.block != block.block || bytes.size() != block.bytes)
    return runtime_error("it was sent other weights than it asked for; do all hosts run the same release?");
  if (sha256(bytes) != block.hash)
    return runtime_error("weights came damaged, or the coordinator's file has changed: start again");
  File& file = files_[block.file];
  for (size_t done = 0; done < bytes.size();) {
    const auto at = static_cast<off_t>(block.block * kWeightBlockBytes + done);
    const ssize_t n = ::pwrite(file.descriptor->fd, bytes.data() + done, bytes.size() - done, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed(std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  file.known.set(block.block, block.hash);
  return {};
}

Status WeightStore::keep() {
  for (size_t i = 0; i < files_.size(); ++i) {
    if (::fdatasync(files_[i].descriptor->fd) != 0) return failed(std::strerror(errno));
    if (const auto error = files_[i].known.save(blocks_path(i))) return failed(error.message());
  }
  return {};
}

// As llama.cpp names the files of a model in parts.
std::string WeightStore::file_path(size_t file) const {
  if (files_.size() == 1) return folder_ + "/model.gguf";
  char name[40];
  std::snprintf(name, sizeof name, "/model-%05zu-of-%05zu.gguf", file + 1, files_.size());
  return folder_ + name;
}

tl::unexpected<Error> WeightStore::failed(const std::string& why) const {
  return runtime_error("weights can't be kept in " + folder_ + " (" + why +
                       "): start it with --cache on a disk with room, or with --no-fetch and a copy of the file");
}

uint64_t bytes_kept(const WeightCache& cache) {
  uint64_t bytes = 0;
  for (const fs::path& folder : folders_of(cache)) bytes += bytes_of_folder(folder);
  return bytes;
}

}  // namespace sluice
