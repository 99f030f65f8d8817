#include <cstdlib>
#include <string_view>
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
SLUICE_DECLARE(avx512bf16)
SLUICE_DECLARE(amx)
#elif defined(__aarch64__)
SLUICE_DECLARE(neon)
#endif

namespace {

#if defined(__x86_64__)
// What compilers do not all know by name: a bit of EAX of CPUID's leaf 7.1.
bool has_feature(int bit) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> bit & 1) != 0;
}
constexpr int kAvxVnni = 4, kAvx512Bf16 = 5;
#endif

std::vector<const Kernels*> find_runnable() {
  std::vector<const Kernels*> found;
  static const Kernels of_scalar = scalar::table();
  found.push_back(&of_scalar);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {  // with F16C on every processor there is
    static const Kernels of_avx2 = avx2::table();
    found.push_back(&of_avx2);
    if (has_feature(kAvxVnni)) {
      static const Kernels of_avxvnni = avxvnni::table();
      found.push_back(&of_avxvnni);
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni")) {
      static const Kernels of_avx512 = avx512::table();
      found.push_back(&of_avx512);
      if (has_feature(kAvx512Bf16)) {
        static const Kernels of_amx = amx::table();
        if (may_use_tiles() && tiles_are_right(of_amx, of_scalar)) found.push_back(&of_amx);
        static const Kernels of_avx512bf16 = avx512bf16::table();  // faster than tiles, on Emerald Rapids
        found.push_back(&of_avx512bf16);
      }
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

bool use_kernels_of_environment() {
  const char* const name = std::getenv("SLUICE_ISA");
  if (!name || !*name) return true;
  for (const Kernels* const kernels : runnable_kernels()) {
    if (std::string_view(name) != kernels->name) continue;
    use_kernels(*kernels);
    return true;
  }
  return false;
}

}  // namespace sluice::kernels
