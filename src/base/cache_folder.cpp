#include "base/cache_folder.h"

#include <cstdlib>

namespace sluice {

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::string(cache) + "/sluice";
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : ".") + "/.cache/sluice";
}

}  // namespace sluice
