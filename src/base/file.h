// Files that are written whole: whoever opens one finds what was there before, or all of the new one. And where those
// are that can always be made again.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>

namespace sluice {

// $XDG_CACHE_HOME/sluice, or ~/.cache/sluice. It need not exist.
std::string cache_folder();

// All of `bytes` into `path`, as a WholeFile.
std::error_code write_whole(const std::string& path, std::string_view bytes, bool durable = true);

// A file under way. It takes the place of `path` when it is committed, with that one's permissions; a symbolic link
// stays one, and the file that it names is replaced. A device or a pipe can't be replaced, so it is written to as it
// is. What is not committed leaves nothing behind, and what a killed process left goes when the same file is next
// written.
class WholeFile {
 public:
  explicit WholeFile(const std::string& path);
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile();

  // Where to write; null if it can't be, and commit() says why. Errors in writing are remembered until then.
  std::FILE* stream() { return stream_; }

  // Puts the file in its place. `durable`: its bytes have reached the disk before. To be called once, at the end.
  std::error_code commit(bool durable = true);

 private:
  friend std::error_code write_whole(const std::string& path, std::string_view bytes, bool durable);
  std::error_code open(const std::string& path);
  std::error_code open_beside(mode_t mode);

  std::FILE* stream_ = nullptr;
  std::error_code error_;
  std::string path_;   // which is replaced
  std::string draft_;  // the file under way; empty: `path` is written in place
};

}  // namespace sluice
