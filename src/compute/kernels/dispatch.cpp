#include <vector>

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>

#include "compute/kernels/amx.h"
#endif

#include "compute/kernels/kernels.h"

namespace sluice::kernels {

#define SLUICE_DECLARE(isa) \
  namespace isa {           \
  Kernels table();          \
  }
SLUICE_DECLARE(scalar)
#if defined(__x86_64__)
SLUICE_DECLARE(avx2)
SLUICE_DECLARE(avxvnni)
SLUICE_DECLARE(avx512)
SLUICE_DECLARE(amx)
#elif defined(__aarch64__)
SLUICE_DECLARE(neon)
#endif

namespace {

#if defined(__x86_64__)
// The 256-bit form of VNNI, which compilers do not all know by name.
bool has_avx_vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 4 & 1) != 0;
}
#endif

std::vector<const Kernels*> find_runnable() {
  std::vector<const Kernels*> found;
  static const Kernels of_scalar = scalar::table();
  found.push_back(&of_scalar);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {  // with F16C on every processor there is
    static const Kernels of_avx2 = avx2::table();
    found.push_back(&of_avx2);
    if (has_avx_vnni()) {
      static const Kernels of_avxvnni = avxvnni::table();
      found.push_back(&of_avxvnni);
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni")) {
      static const Kernels of_avx512 = avx512::table();
      found.push_back(&of_avx512);
      static const Kernels of_amx = amx::table();
      if (may_use_tiles() && tiles_are_right(of_amx, of_scalar)) found.push_back(&of_amx);
    }
  }
#elif defined(__aarch64__)
  constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP
  if (getauxval(AT_HWCAP) & kDotProducts) {
    static const Kernels of_neon = neon::table();
    found.push_back(&of_neon);
  }
#endif
  return found;
}

const Kernels*& chosen() {
  static const Kernels* kernels = runnable_kernels().back();
  return kernels;
}

}  // namespace

std::span<const Kernels* const> runnable_kernels() {
  static const std::vector<const Kernels*> all = find_runnable();
  return all;
}

const Kernels& kernels() { return *chosen(); }

void use_kernels(const Kernels& kernels) { chosen() = &kernels; }

}  // namespace sluice::kernels
