#include "base/result.h"

namespace sluice {

void check_failed(const char* condition, const char* file, int line, const char* why) {
  throw BrokenInvariant(std::string("a broken invariant, please report it: ") + why + " (" + condition + "), " + file +
                            ":" + std::to_string(line),
                        why);
}

}  // namespace sluice
