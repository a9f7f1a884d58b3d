// Philox4x32-10 (Salmon et al., SC 2011): a counter-based generator.
//
// A draw is a pure function of (seed, position, choice index), so no draw can shift another request's, and
// a preempted request draws the same number again when it reaches the same position.
#pragma once

#include <array>
#include <cstdint>

namespace octavo {

using PhiloxWords = std::array<uint32_t, 4>;

// Ten rounds over `counter` under the key (low, high word of the seed).
inline PhiloxWords philox4x32_10(PhiloxWords counter, uint64_t seed) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, key0 += kWeyl0, key1 += kWeyl1) {
    const uint64_t product0 = kMultiplier0 * counter[0], product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
  }
  return counter;
}

// The draw for the token at `position`: 53 bits of two words, u = ((w0 >> 5) * 2^26 + (w1 >> 6)) / 2^53,
// uniform in [0, 1).
inline double sampling_uniform(uint64_t seed, uint32_t position, uint32_t choice_index) {
  const PhiloxWords words = philox4x32_10({position, choice_index, 0, 0}, seed);
  const uint64_t bits = (static_cast<uint64_t>(words[0] >> 5) << 26) | (words[1] >> 6);
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace octavo
