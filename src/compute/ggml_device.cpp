#include "compute/ggml_device.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace sluice {

namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Once, when the first device is asked for: drivers take their time.
void load_backends() {
  static const bool loaded = [] {
    std::error_code error;
    const char* const named = std::getenv("SLUICE_GGML");
    const auto folder = named != nullptr ? std::filesystem::path(named)
                                         : std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);  // what goes wrong is said here
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

Result<GgmlBufferPtr> GgmlDevice::allocate(ggml_context* tensors, const std::string& what) const {
  if (ggml_get_first_tensor(tensors) == nullptr) return GgmlBufferPtr();
  GgmlBufferPtr buffer(ggml_backend_alloc_ctx_tensors(tensors, backend_.get()));
  if (!buffer) return too_little_memory(what);
  return buffer;
}

tl::unexpected<Error> GgmlDevice::too_little_memory(const std::string& what) const {
  size_t free = 0, total = 0;
  ggml_backend_dev_memory(ggml_backend_get_device(backend_.get()), &free, &total);
  return runtime_error("device " + name_ + " has too little memory for " + what + ", " + std::to_string(free >> 20) +
                       " MiB are free: give it fewer layers (--cuts) or a smaller --context, or take another --device");
}

}  // namespace sluice
