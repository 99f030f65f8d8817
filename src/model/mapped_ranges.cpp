#include "model/mapped_ranges.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

namespace sluice {

// Read by a signal handler, so: never freed but used again, and `begin` says last that the rest is right.
struct MappedRange::Place {
  static constexpr size_t kLongestPath = 4096;

  std::atomic<const std::byte*> begin = nullptr;  // none: the place is free
  std::atomic<const std::byte*> end = nullptr;
  char path[kLongestPath] = {};
  Place* next = nullptr;
};

namespace {

// Signals have no other way to what they need.
std::mutex g_mutex;  // of those who enter and leave
std::atomic<MappedRange::Place*> g_places = nullptr;
struct sigaction g_previous {};

MappedRange::Place& free_place() {
  for (MappedRange::Place* place = g_places; place != nullptr; place = place->next)
    if (place->begin == nullptr) return *place;
  auto* const place = new MappedRange::Place;
  place->next = g_places;
  g_places = place;
  return *place;
}

const char* file_at(const void* address) {
  const auto* const at = static_cast<const std::byte*>(address);
  for (const MappedRange::Place* place = g_places; place != nullptr; place = place->next)
    if (place->begin != nullptr && place->begin <= at && at < place->end) return place->path;
  return nullptr;
}

// Nothing here but what a signal handler may call.
[[noreturn]] void end_program(const char* path) {
  constexpr const char* kBefore = "sluice: ";
  constexpr const char* kAfter =
      ": has become shorter, or can no longer be read, while it was in use; start again once the file is whole\n";
  char line[MappedRange::Place::kLongestPath + 256];
  size_t n = 0;
  const auto add = [&](const char* text) {
    const size_t length = std::min(std::strlen(text), sizeof line - n);
    std::memcpy(line + n, text, length);
    n += length;
  };
  add(kBefore);
  add(path);
  std::replace(line, line + n, '\n', ' ');
  add(kAfter);
  static_cast<void>(!::write(STDERR_FILENO, line, n));
  ::_exit(1);
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  static std::atomic_flag ending = ATOMIC_FLAG_INIT;
  const bool is_fault = info->si_code > 0;  // else somebody has sent it
  if (const char* path = is_fault ? file_at(info->si_addr) : nullptr) {
    while (ending.test_and_set()) ::pause();  // another thread is saying it
    end_program(path);
  }
  ::sigaction(signal, &g_previous, nullptr);
  if (!is_fault) ::raise(signal);  // a fault comes again by itself
}

}  // namespace

MappedRange::MappedRange(std::span<const std::byte> bytes, const std::string& path) {
  const std::lock_guard lock(g_mutex);
  place_ = &free_place();
  const size_t n = std::min(path.size(), Place::kLongestPath - 1);
  std::memcpy(place_->path, path.data(), n);
  place_->path[n] = '\0';
  place_->end = bytes.data() + bytes.size();
  place_->begin = bytes.data();
}

MappedRange::~MappedRange() {
  if (place_ == nullptr) return;
  const std::lock_guard lock(g_mutex);
  place_->begin = nullptr;
}

void report_truncated_files() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &g_previous);
}

}  // namespace sluice
