// Measuring the machine itself.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

enum class ProbeKind : int32_t { kRead = 0, kFloat = 1, kInteger = 2, kRoundTrip = 3, kReadAhead = 4 };

struct ProbeOp {
  ProbeKind kind;
  const std::byte* bytes;  // of readings: what to read
  int64_t num_bytes;       // a multiple of 1 MiB
  int64_t repetitions;     // the other kinds: per worker, of round trips altogether
  int64_t* turn;           // kRoundTrip: 0, on a cache line of its own
};

}  // namespace octavo
