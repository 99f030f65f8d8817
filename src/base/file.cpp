#include "base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace sluice {

namespace {

std::error_code last_error() { return {errno != 0 ? errno : EIO, std::generic_category()}; }
std::error_code error_of(int number) { return {number, std::generic_category()}; }

constexpr std::string_view kDraft = ".tmp";

// A process that was killed leaves what it was writing, which nobody else will finish.
void remove_drafts_of_the_dead(const std::filesystem::path& path) {
  const std::string beginning = path.filename().string() + ".";
  std::error_code failed;
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(beginning) || !name.ends_with(kDraft)) continue;
    const int writer = std::atoi(name.c_str() + beginning.size());
    std::error_code ignored;
    if (writer > 0 && ::kill(writer, 0) != 0 && errno == ESRCH) std::filesystem::remove(at->path(), ignored);
  }
}

}  // namespace

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::string(cache) + "/sluice";
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : ".") + "/.cache/sluice";
}

WholeFile::WholeFile(const std::string& path) : path_(path) { error_ = open(path); }

std::error_code WholeFile::open(const std::string& path) {
  struct stat found;
  if (::stat(path.c_str(), &found) != 0) return open_beside(0666);
  if (S_ISDIR(found.st_mode)) return error_of(EISDIR);
  if (::access(path.c_str(), W_OK) != 0) return last_error();
  if (!S_ISREG(found.st_mode)) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return last_error();
    stream_ = ::fdopen(file, "wb");
    return {};
  }
  std::error_code failed;
  path_ = std::filesystem::canonical(path, failed).string();
  return failed ? failed : open_beside(found.st_mode & 0777);
}

// In the same folder, since a file is renamed within its file system.
std::error_code WholeFile::open_beside(mode_t mode) {
  remove_drafts_of_the_dead(path_);
  static std::atomic<int> number = 0;
  draft_ = path_ + "." + std::to_string(::getpid()) + "-" + std::to_string(number++) + std::string(kDraft);
  ::unlink(draft_.c_str());  // of a process that had our number and died
  const int file = ::open(draft_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) {
    draft_.clear();
    return last_error();
  }
  stream_ = ::fdopen(file, "wb");
  return {};
}

std::error_code WholeFile::commit(bool durable) {
  if (error_) return error_;
  std::FILE* const stream = std::exchange(stream_, nullptr);
  errno = 0;
  if (std::fflush(stream) != 0 || std::ferror(stream) != 0) error_ = last_error();
  if (!error_ && durable && !draft_.empty() && ::fsync(::fileno(stream)) != 0) error_ = last_error();
  if (std::fclose(stream) != 0 && !error_) error_ = last_error();
  if (error_ || draft_.empty()) return error_;
  if (::rename(draft_.c_str(), path_.c_str()) != 0) return error_ = last_error();
  draft_.clear();
  return {};
}

WholeFile::~WholeFile() {
  if (stream_ != nullptr) std::fclose(stream_);
  if (!draft_.empty()) ::unlink(draft_.c_str());
}

std::error_code write_whole(const std::string& path, std::string_view bytes, bool durable) {
  WholeFile file(path);
  if (file.stream() != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file.stream()) < bytes.size())
    file.error_ = last_error();
  return file.commit(durable);
}

}  // namespace sluice
