#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace sluice {

void check_failed(const char* condition, const char* file, int line, const char* why) {
  std::fprintf(stderr, "sluice: a broken invariant, please report it: %s (%s), %s:%d\n", why, condition, file, line);
  std::abort();
}

}  // namespace sluice
