#include "engine/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace sluice {
namespace {

tl::unexpected<Error> cannot_write(const std::string& path, int error) {
  return runtime_error("cannot write the trace '" + path + "': " + std::strerror(error));
}

// All of `bytes` into `file`, which is closed in any case. 0 or the first error's number. `durable`: the bytes have
// reached the disk.
int write_and_close(int file, std::string_view bytes, bool durable) {
  int error = 0;
  while (error == 0 && !bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (written == 0) {
      error = EIO;
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (error == 0 && durable && ::fsync(file) != 0) error = errno;
  if (::close(file) != 0 && error == 0) error = errno;
  return error;
}

// A device or a pipe can't be replaced by a file, so it is written to as it is.
Status write_in_place(const std::string& path, std::string_view bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return cannot_write(path, errno);
  if (const int error = write_and_close(file, bytes, false)) return cannot_write(path, error);
  return {};
}

// Under another name in the same folder first: whoever opens `path` finds the old file or the whole new one.
Status replace_file(const std::string& path, std::string_view bytes, mode_t mode) {
  const std::string draft = path + "." + std::to_string(::getpid()) + ".tmp";
  ::unlink(draft.c_str());  // of a process that had our number and died
  const int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) return cannot_write(path, errno);
  int error = write_and_close(file, bytes, true);
  if (error == 0 && ::rename(draft.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(draft.c_str());
  return cannot_write(path, error);
}

Status write_file(const std::string& path, std::string_view bytes) {
  struct stat found;
  if (::stat(path.c_str(), &found) != 0) return replace_file(path, bytes, 0666);
  if (S_ISDIR(found.st_mode)) return cannot_write(path, EISDIR);
  if (::access(path.c_str(), W_OK) != 0) return cannot_write(path, errno);
  if (!S_ISREG(found.st_mode)) return write_in_place(path, bytes);
  // A symbolic link stays one: the file that it names is replaced.
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  if (failed) return cannot_write(path, failed.value());
  return replace_file(real.string(), bytes, found.st_mode & 0777);
}

}  // namespace

const char* name(Fate fate) {
  switch (fate) {
    case Fate::kUnresolved:
      return "unresolved";
    case Fate::kPrompt:
      return "prompt";
    case Fate::kAccepted:
      return "accepted";
    case Fate::kPruned:
      return "pruned";
    case Fate::kFlushed:
      return "flushed";
    case Fate::kDrafted:
      return "drafted";
  }
  return "unresolved";
}

std::vector<double> Trace::utilisation() const {
  const size_t stages = static_cast<size_t>(std::max(header.stages, 0));
  std::vector<double> busy(stages, 0.0);
  const double window = header.decode_end - header.decode_begin;
  if (!(window > 0)) return busy;

  // The union of a stage's spans, so that spans which overlap are not counted twice.
  std::vector<std::vector<std::pair<double, double>>> spans_of(stages);
  for (const TraceSpan& span : spans) {
    if (!span.stage.valid() || static_cast<size_t>(span.stage.value) >= stages) continue;
    const double begin = std::max(span.begin, header.decode_begin), end = std::min(span.end, header.decode_end);
    if (begin < end) spans_of[static_cast<size_t>(span.stage.value)].emplace_back(begin, end);
  }
  for (size_t stage = 0; stage < stages; stage++) {
    std::sort(spans_of[stage].begin(), spans_of[stage].end());
    double covered = header.decode_begin;
    for (const auto& [begin, end] : spans_of[stage]) {
      busy[stage] += std::max(0.0, end - std::max(begin, covered));
      covered = std::max(covered, end);
    }
    busy[stage] = std::min(busy[stage] / window, 1.0);
  }
  return busy;
}

Status Trace::write(const std::string& path) const {
  return write_file(path, path.ends_with(".html") ? html() : chrome_json());
}

}  // namespace sluice
