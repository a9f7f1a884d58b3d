#include "processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace octavo {

namespace {

#if defined(__x86_64__)
constexpr unsigned kVendorAmd = 0x68747541;  // "Auth"
constexpr unsigned kFamilyZen3And4 = 0x19, kFamilyZen5 = 0x1a;
constexpr unsigned kAvx512F = 1u << 16;  // leaf 7, EBX: has Zen 4, not Zen 3

// 0: of another vendor.
unsigned amd_family() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0 || ebx != kVendorAmd) return 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return 0;
  return (eax >> 8 & 0xf) + (eax >> 20 & 0xff);
}

bool is_zen5_or_later() { return amd_family() >= kFamilyZen5; }

bool is_zen3() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return amd_family() == kFamilyZen3And4 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kAvx512F) == 0;
}
#else
bool is_zen5_or_later() { return false; }
bool is_zen3() { return false; }
#endif

}  // namespace

WeightPrefetch weight_prefetch() {
  if (is_zen5_or_later()) return WeightPrefetch::kFirstLevel;
  return is_zen3() ? WeightPrefetch::kJustAhead : WeightPrefetch::kSecondLevel;
}

}  // namespace octavo
