#include "transport/secret.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace sluice {

namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::optional<uint8_t> digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint8_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<uint8_t>(c - 'A' + 10);
  return std::nullopt;
}

std::optional<Secret> secret_of(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  Secret secret;
  if (text.size() != 2 * secret.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < secret.bytes.size(); ++i) {
    const auto high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (!high || !low) return std::nullopt;
    secret.bytes[i] = static_cast<uint8_t>(*high << 4 | *low);
  }
  return secret;
}

std::string reason() { return std::strerror(errno); }

// Of a service that systemd gives the file: nobody else can reach the folder, and the group's bits are no group's but
// those of an access list.
bool is_credential(const std::string& path) {
  const char* folder = std::getenv("CREDENTIALS_DIRECTORY");
  return folder != nullptr && *folder != '\0' && path.starts_with(std::string(folder) + "/");
}

}  // namespace

Result<Secret> Secret::load(const std::string& path) {
  const std::string name = "--secret " + path, remedy = ": sluice secret FILE makes one; all hosts need the same";
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (file.get() < 0 || ::fstat(file.get(), &about) != 0) return input_error(name + ": " + reason() + remedy);
  if (!S_ISREG(about.st_mode)) return input_error(name + " is no file" + remedy);
  const mode_t others = is_credential(path) ? S_IRWXO : S_IRWXG | S_IRWXO;
  if ((about.st_mode & others) != 0)
    return input_error(name + " may be read by others: chmod 600 " + path +
                       ", or, if they may have read it, make another");
  char text[256];
  const ssize_t n = ::read(file.get(), text, sizeof text);
  const auto secret = n < 0 ? std::nullopt : secret_of({text, static_cast<size_t>(n)});
  if (!secret) return input_error(name + " holds no secret of 32 bytes, 64 hexadecimal digits" + remedy);
  return *secret;
}

Status make_secret(const std::string& path) {
  Secret secret;
  if (RAND_priv_bytes(secret.bytes.data(), static_cast<int>(secret.bytes.size())) != 1)
    return runtime_error("the system gives no random numbers");
  std::string text;
  for (const uint8_t byte : secret.bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  text += '\n';
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.get() < 0 && errno == EEXIST)
    return runtime_error(path + " is there already: hosts may be using it; name another file, or remove it first");
  if (file.get() < 0) return runtime_error(path + ": can't be written: " + reason() + "; name a writable file");
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fsync(file.get()) != 0) {
    const std::string why = reason();
    ::unlink(path.c_str());
    return runtime_error(path + ": can't be written: " + why + "; name a file on a disk with room");
  }
  return {};
}

}  // namespace sluice
