// Probes: what this machine does at best with the instructions that the kernels are made of. `octavo bench
// kernels` sets the kernels' speeds beside them.
#pragma once

#include <sched.h>

namespace octavo::OCTAVO_ISA {
namespace {

constexpr int64_t kProbePiece = int64_t{1} << 20;  // bytes read per claim
constexpr int kProbeSums = 12;                     // in flight at once: more than latency times units anywhere

// Every loop over sums is unrolled, or they would live in memory.
#define OCTAVO_EACH_SUM _Pragma("GCC unroll 12") for (int i = 0; i < kProbeSums; ++i)

OCTAVO_INLINE void keep(const Worker& worker, const vi (&sums)[kProbeSums]) {
  OCTAVO_EACH_SUM vstore_int(reinterpret_cast<int32_t*>(worker.scratch) + i * kWidth, sums[i]);
  const std::byte* written = worker.scratch;
  forget(written);
}

// Reads every byte once. kAsks: for lines a page ahead as well, without which some processors read slower, and some faster.
template <bool kAsks>
void probe_read(const ProbeOp& op, Worker& worker) {
  constexpr int kLoads = 8;
  constexpr int kAhead = 1024;  // elements, one page
  vi sums[kProbeSums];
  OCTAVO_EACH_SUM sums[i] = vsplat_int(0);
  for (int64_t first = claim(worker, kProbePiece); first < op.num_bytes; first = claim(worker, kProbePiece)) {
    const auto* piece = reinterpret_cast<const int32_t*>(op.bytes + first);
    for (int64_t i = 0; i < kProbePiece / 4; i += kLoads * kWidth) {
#pragma GCC unroll 8
      for (int j = 0; j < kLoads; ++j) {
        if constexpr (kAsks) prefetch(piece + i + j * kWidth + kAhead);
        sums[j] = add(sums[j], vload_int(piece + i + j * kWidth));
      }
    }
  }
  keep(worker, sums);
}

// The repetitions of all workers, in pieces that they claim.
class Repetitions {
 public:
  Repetitions(const ProbeOp& op, Worker& worker)
      : repetitions_(op.repetitions), num_pieces_((op.repetitions + kPiece - 1) / kPiece), worker_(worker) {}

  // How many the next piece has; 0: there is none.
  int64_t claim_count() {
    const int64_t piece = claim(worker_, 1);
    if (piece >= num_pieces_ * worker_.count) return 0;
    const int64_t left = repetitions_ - piece % num_pieces_ * kPiece;
    return left < kPiece ? left : kPiece;
  }

 private:
  static constexpr int64_t kPiece = 4096;

  int64_t repetitions_, num_pieces_;
  Worker& worker_;
};

// One fma per sum and repetition, as often as there are workers.
void probe_float(const ProbeOp& op, Worker& worker) {
  vf sums[kProbeSums];
  OCTAVO_EACH_SUM sums[i] = vsplat(static_cast<float>(i));
  const vf factor = vsplat(0.5f);
  Repetitions repetitions(op, worker);
  for (int64_t count = repetitions.claim_count(); count > 0; count = repetitions.claim_count()) {
    for (int64_t n = 0; n < count; ++n) {
      OCTAVO_EACH_SUM sums[i] = fma(sums[i], factor, factor);
    }
  }
  vi bits[kProbeSums];
  OCTAVO_EACH_SUM bits[i] = bits_of(sums[i]);
  keep(worker, bits);
}

// One quad_add per sum and repetition, as often as there are workers: 3 vectors of weights by 4 of activations from the
// first-level cache.
void probe_integer(const ProbeOp& op, Worker& worker) {
  constexpr int kCols = 3;
  __builtin_memset(worker.scratch, 1, 4096);
  const std::byte* rows = worker.scratch;
  forget(rows);
  vbytes weights[kCols];
#pragma GCC unroll 3
  for (int c = 0; c < kCols; ++c) weights[c] = load_bytes(rows + 1024 + c * 64);
  quad_sum sums[kProbeSums];
  OCTAVO_EACH_SUM sums[i] = quad_zero();
  Repetitions repetitions(op, worker);
  for (int64_t count = repetitions.claim_count(); count > 0; count = repetitions.claim_count()) {
    for (int64_t n = 0; n < count; ++n) {
      forget(rows);
      OCTAVO_EACH_SUM sums[i] = quad_add(sums[i], weights[i % kCols], load_bytes(rows + i / kCols * 64));
    }
  }
  vi totals[kProbeSums];
  OCTAVO_EACH_SUM totals[i] = quad_total(sums[i]);
  keep(worker, totals);
}

#undef OCTAVO_EACH_SUM

// Two workers answer each other through a cache line. Neither is done before both have come, which may be on the same core.
void probe_round_trips(const ProbeOp& op, Worker& worker) {
  if (worker.count == 1) return;
  for (int64_t side = claim(worker, 1); side < 2; side = claim(worker, 1)) {
    for (int64_t turn = side; turn < 2 * op.repetitions; turn += 2) {
      for (int spins = 1; __atomic_load_n(op.turn, __ATOMIC_ACQUIRE) != turn; ++spins) {
        if (spins % 4096 == 0) sched_yield();
      }
      __atomic_store_n(op.turn, turn + 1, __ATOMIC_RELEASE);
    }
  }
}

void probe(const ProbeOp& op, Worker& worker) {
  switch (op.kind) {
    case ProbeKind::kRead: return probe_read<false>(op, worker);
    case ProbeKind::kReadAhead: return probe_read<true>(op, worker);
    case ProbeKind::kFloat: return probe_float(op, worker);
    case ProbeKind::kInteger: return probe_integer(op, worker);
    case ProbeKind::kRoundTrip: return probe_round_trips(op, worker);
  }
}

// Multiplications and additions of one worker in one repetition.
int64_t probe_operations(ProbeKind kind) {
  switch (kind) {
    case ProbeKind::kRead: case ProbeKind::kReadAhead: case ProbeKind::kRoundTrip: return 0;
    case ProbeKind::kFloat: return int64_t{2} * kProbeSums * kWidth;
    case ProbeKind::kInteger: return int64_t{2} * 4 * kProbeSums * kWidth;
  }
  return 0;
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
