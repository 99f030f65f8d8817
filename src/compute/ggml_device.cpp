#include "compute/ggml_device.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace sluice {

namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Of the guard that this thread is in: the first error that ggml has logged there. Null: it is in none.
thread_local std::string* error_said = nullptr;

void on_log(ggml_log_level level, const char* text, void*) {
  if (error_said == nullptr || level != GGML_LOG_LEVEL_ERROR || !error_said->empty()) return;
  *error_said = text;
  while (!error_said->empty() && std::isspace(static_cast<unsigned char>(error_said->back())) != 0)
    error_said->pop_back();
}

// In place of a stack trace and the end.
void on_abort(const char* message) {
  if (error_said != nullptr) throw std::runtime_error(error_said->empty() ? message : *error_said);
  std::fprintf(stderr, "sluice: ggml can't go on: %s\n", message);
  ::_exit(1);
}

// Once, when the first device is asked for: drivers take their time.
void load_backends() {
  static const bool loaded = [] {
    std::error_code error;
    const char* const named = std::getenv("SLUICE_GGML");
    const auto folder = named != nullptr ? std::filesystem::path(named)
                                         : std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    ggml_log_set(on_log, nullptr);  // what goes wrong is said here
    ggml_set_abort_callback(on_abort);
    if (!folder.empty()) ggml_backend_load_all_from_path(folder.c_str());
    return true;
  }();
  static_cast<void>(loaded);
}

std::string name_of(ggml_backend_dev_t device) { return kGgmlPrefix + lower(ggml_backend_dev_name(device)); }

std::vector<ggml_backend_dev_t> devices() {
  load_backends();
  std::vector<ggml_backend_dev_t> all(ggml_backend_dev_count());
  for (size_t i = 0; i < all.size(); ++i) all[i] = ggml_backend_dev_get(i);
  return all;
}

void set_threads(ggml_backend_t backend, int32_t threads) {
  ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
  const auto set = reinterpret_cast<ggml_backend_set_n_threads_t>(
      ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads"));
  if (set != nullptr) set(backend, threads);
}

}  // namespace

std::vector<GgmlDeviceText> ggml_devices() {
  std::vector<GgmlDeviceText> texts;
  for (ggml_backend_dev_t device : devices()) {
    std::string name = name_of(device);
    if (std::ranges::find(texts, name, &GgmlDeviceText::name) != texts.end()) continue;
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(device, &free, &total);
    texts.push_back({std::move(name), ggml_backend_dev_description(device), static_cast<int64_t>(total),
                     static_cast<int64_t>(free)});
  }
  return texts;
}

Result<GgmlDevice> GgmlDevice::open(const std::string& asked, int32_t threads) {
  const auto all = devices();
  const auto found = std::ranges::find(all, lower(asked), name_of);
  if (found == all.end()) {
    std::string names = "cpu";
    for (const GgmlDeviceText& device : ggml_devices()) names += ", " + device.name;
    return input_error("there is no device '" + asked + "' here; there are " + names);
  }
  GgmlBackendPtr backend(ggml_backend_dev_init(*found, nullptr));
  if (!backend) return runtime_error("device " + name_of(*found) + " does not start; another program may hold it");
  set_threads(backend.get(), threads);
  return GgmlDevice(name_of(*found), std::move(backend));
}

void guard_ggml(const std::string& device, const std::function<void()>& work) {
  load_backends();
  std::string said;
  std::string* const outer = std::exchange(error_said, &said);
  try {
    work();
    error_said = outer;
  } catch (const std::exception& error) {
    error_said = outer;
    throw std::runtime_error("device " + device + " failed: " + error.what() +
                             "; start again, and if it fails again take another --device");
  }
}

// A processor's passes are shared with threads of ggml's, which no exception may leave; and it has no driver.
void GgmlDevice::use(const std::function<void()>& work) {
  if (ggml_backend_dev_type(ggml_backend_get_device(backend_.get())) == GGML_BACKEND_DEVICE_TYPE_CPU) return work();
  try {
    guard_ggml(name_, work);
  } catch (...) {
    is_lost_ = true;
    throw;
  }
}

Result<GgmlBufferPtr> GgmlDevice::allocate(ggml_context* tensors, const std::string& what) const {
  if (ggml_get_first_tensor(tensors) == nullptr) return GgmlBufferPtr();
  GgmlBufferPtr buffer(ggml_backend_alloc_ctx_tensors(tensors, backend_.get()));
  if (!buffer) return too_little_memory(what);
  return buffer;
}

bool GgmlDevice::is_processor() const {
  return ggml_backend_dev_type(ggml_backend_get_device(backend_.get())) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

tl::unexpected<Error> GgmlDevice::too_little_memory(const std::string& what) const {
  size_t free = 0, total = 0;
  ggml_backend_dev_memory(ggml_backend_get_device(backend_.get()), &free, &total);
  return runtime_error("device " + name_ + " has too little memory for " + what + ", " + std::to_string(free >> 20) +
                       " MiB are free: give it fewer layers (--cuts) or a smaller --context, or take another --device");
}

}  // namespace sluice
