#include "session/width_lock.h"

#include <set>

namespace sluice {

std::string lock_text(const SessionOptions& options, Exactness exactness) {
  if (options.width_lock == 0 || holds_to_the_bit(exactness)) return "";
  std::set<std::string> devices(options.devices.begin(), options.devices.end());
  devices.erase(kCpuDevice);
  std::string whose;
  for (const std::string& device : devices) whose += (whose.empty() ? "" : ", ") + device;
  if (whose.empty()) whose = "a host's device";
  return "--width-lock " + std::to_string(options.width_lock) + " does not keep the bits of " + whose +
         " still: methods may give other tokens than plain decoding; another width may do (1 to " +
         std::to_string(kMostWidthLock) + ")";
}

}  // namespace sluice
