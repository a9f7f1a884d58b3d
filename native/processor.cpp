#include "processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace octavo {

namespace {

#if defined(__x86_64__)
constexpr unsigned kVendorAmd = 0x68747541;  // "Auth"
constexpr unsigned kFamilyZen5 = 0x1a;

bool is_zen5_or_later() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0 || ebx != kVendorAmd) return false;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  const unsigned family = (eax >> 8 & 0xf) + (eax >> 20 & 0xff);
  return family >= kFamilyZen5;
}
#else
bool is_zen5_or_later() { return false; }
#endif

}  // namespace

WeightPrefetch weight_prefetch() {
  return is_zen5_or_later() ? WeightPrefetch::kFirstLevel : WeightPrefetch::kSecondLevel;
}

}  // namespace octavo
