#include "isa.h"

#include "error.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace octavo {

#if defined(__x86_64__)
namespace avx512vnni { extern const KernelTable kKernels; }
namespace avx512 { extern const KernelTable kKernels; }
namespace avx2 { extern const KernelTable kKernels; }
#elif defined(__aarch64__)
namespace neondotprod { extern const KernelTable kKernels; }
namespace neon { extern const KernelTable kKernels; }
#endif
namespace generic { extern const KernelTable kKernels; }

namespace {

struct Isa {
  const KernelTable* kernels;
  bool (*can_run)();
};

bool always() { return true; }

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_avx512vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
#elif defined(__aarch64__)
bool has_dotprod() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#endif

// The best first.
constexpr Isa kIsas[] = {
#if defined(__x86_64__)
    {&avx512vnni::kKernels, has_avx512vnni},
    {&avx512::kKernels, has_avx512},
    {&avx2::kKernels, has_avx2},
#elif defined(__aarch64__)
    {&neondotprod::kKernels, has_dotprod},
    {&neon::kKernels, always},
#endif
    {&generic::kKernels, always},
};

std::string joined_names(bool only_available) {
  std::string names;
  for (const Isa& isa : kIsas) {
    if (only_available && !isa.can_run()) continue;
    if (!names.empty()) names += ",";
    names += isa.kernels->name;
  }
  return names;
}

}  // namespace

const std::string& compiled_isas() {
  static const std::string names = joined_names(false);
  return names;
}

const std::string& available_isas() {
  static const std::string names = joined_names(true);
  return names;
}

const KernelTable& kernel_table(const std::string& name) {
  for (const Isa& isa : kIsas) {
    if (name == isa.kernels->name && isa.can_run()) return *isa.kernels;
  }
  throw Error("instruction set " + name + " cannot run here; available: " + available_isas());
}

}  // namespace octavo
