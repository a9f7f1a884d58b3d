// From a row of logits to a token (ADR 0001). Rows are independent; each worker takes whole rows.
//
// z: the logit after, in this order, bias (added), repetition penalty over prompt and output tokens (z / r if
// z > 0, else z · r), frequency penalty (z - f · count) and presence penalty (z - p) over output tokens;
// banned tokens, and those not allowed, are no candidates. Temperature 0 takes the largest z, the lowest id among equals. Otherwise
// weight = exp(z / t - max / t), the largest is 1; min-p keeps weights ≥ min_p, then top-k the k largest, then
// top-p the shortest prefix that weighs top_p · total, one at least; both order by weight descending, ties by
// ascending id. The token is the first, by ascending id, whose running float64 sum of weights exceeds
// u · total; u is philox.h's sampling_uniform(seed, position, choice index). Totals and running sums are
// float64 in ascending order of ids, except top-p's running sum, which follows its own order.
//
// A row fails if a logit is not finite, if bias or penalties make one NaN, if the largest z or z / t is not
// finite, or if every token is banned. A z or z / t of -inf is no candidate.
#pragma once

#include "candidates.inc.h"
#include "logprobs.inc.h"
#include "philox.h"

namespace octavo::OCTAVO_ISA {
namespace {

constexpr int32_t kNoToken = -1;
constexpr int32_t kDrawBlock = 1024;

constexpr int32_t padded_vocab_size(int32_t vocab_size) { return (vocab_size + 63) / 64 * 64; }
constexpr int32_t num_draw_blocks(int32_t vocab_size) { return (vocab_size + kDrawBlock - 1) / kDrawBlock; }

// A worker's memory for one row.
struct SamplingScratch {
  float* values;       // [padded vocab_size]
  double* block_sums;  // [num_draw_blocks]
  CandidateList list;

  SamplingScratch(std::byte* memory, int32_t vocab_size) {
    const size_t padded = static_cast<size_t>(padded_vocab_size(vocab_size));
    values = reinterpret_cast<float*>(memory);
    list.entries = reinterpret_cast<Candidate*>(values + padded);
    list.spare = list.entries + padded + 1;
    list.count = 0;
    block_sums = reinterpret_cast<double*>(list.spare + padded + 1);
    list.counters = reinterpret_cast<uint64_t*>(block_sums + num_draw_blocks(vocab_size));
  }
};

[[maybe_unused]] size_t sample_scratch_bytes(int32_t vocab_size) {
  const size_t padded = static_cast<size_t>(padded_vocab_size(vocab_size));
  const size_t bytes = padded * sizeof(float) + 2 * (padded + 1) * sizeof(Candidate) +
                       static_cast<size_t>(num_draw_blocks(vocab_size)) * sizeof(double) +
                       kNumCounters * sizeof(uint64_t);
  return (bytes + 63) / 64 * 64;
}

// One row of a SampleOp.
struct SampleRow {
  const SampleOp& op;
  int32_t row;

  const float* logits() const { return op.logits + int64_t{row} * op.vocab_size; }
  bool greedy() const { return op.temperature[row] == 0.0f; }
  bool has_penalties() const { return op.penalty_rows[row] >= 0; }
  bool allows_all() const { return op.allowed_rows[row] < 0; }
  bool leaves_logits() const {
    return !has_penalties() && allows_all() && op.bias_starts[row] == op.bias_starts[row + 1] &&
           op.banned_starts[row] == op.banned_starts[row + 1];
  }
  Cuts cuts() const { return {op.top_k[row] < op.vocab_size ? op.top_k[row] : 0, op.top_p[row]}; }
};

inline void add_bias(const SampleRow& row, float* values) {
  for (int32_t i = row.op.bias_starts[row.row]; i < row.op.bias_starts[row.row + 1]; ++i) {
    values[row.op.bias_token_ids[i]] += row.op.bias_values[i];
  }
}

struct Penalties {
  f32x16 repetition, frequency, presence;
};

// z of 16 tokens; `counts` and `prompt` are 0 for tokens that were not generated, or are not in the prompt.
OCTAVO_INLINE f32x16 penalize(const Penalties& penalties, f32x16 z, f32x16 counts, f32x16 prompt) {
  const f32x16 zero = splat16(0.0f);
  const f32x16 weakened = select(greater(z, zero), div(z, penalties.repetition), mul(z, penalties.repetition));
  const f32x16 repeated = select(greater(add(counts, prompt), zero), weakened, z);
  const f32x16 less_frequent = sub(repeated, mul(penalties.frequency, counts));
  return select(greater(counts, zero), sub(less_frequent, penalties.presence), less_frequent);
}

// `values` has room for whole vectors; counts and prompt tokens have not.
inline void apply_penalties(const SampleRow& row, float* values) {
  const int64_t offset = int64_t{row.op.penalty_rows[row.row]} * row.op.vocab_size;
  const int32_t* counts = row.op.output_counts + offset;
  const uint8_t* prompt = row.op.prompt_tokens + offset;
  const Penalties penalties = {splat16(row.op.repetition_penalty[row.row]), splat16(row.op.frequency_penalty[row.row]),
                               splat16(row.op.presence_penalty[row.row])};
  alignas(64) float lane_counts[kLanes] = {}, lane_prompt[kLanes] = {};
  for (int32_t begin = 0; begin < row.op.vocab_size; begin += kLanes) {
    const int32_t lanes = row.op.vocab_size - begin < kLanes ? row.op.vocab_size - begin : kLanes;
    for (int32_t i = 0; i < lanes; ++i) {
      lane_counts[i] = static_cast<float>(counts[begin + i]);
      lane_prompt[i] = static_cast<float>(prompt[begin + i]);
    }
    store16(values + begin, penalize(penalties, load16(values + begin), load16(lane_counts), load16(lane_prompt)));
  }
}

inline void ban_tokens(const SampleRow& row, float* values) {
  for (int32_t i = row.op.banned_starts[row.row]; i < row.op.banned_starts[row.row + 1]; ++i) {
    values[row.op.banned_token_ids[i]] = -__builtin_inff();
  }
}

// Most words are all ones or all zeros.
inline void keep_allowed(const SampleRow& row, float* values) {
  if (row.allows_all()) return;
  const int32_t vocab_size = row.op.vocab_size;
  const uint32_t* words = row.op.allowed_tokens + int64_t{row.op.allowed_rows[row.row]} * ((vocab_size + 31) / 32);
  for (int32_t begin = 0; begin < vocab_size; begin += 32) {
    const uint32_t word = words[begin / 32];
    if (word == ~uint32_t{0}) continue;
    const int32_t bits = vocab_size - begin < 32 ? vocab_size - begin : 32;
    for (int32_t i = 0; i < bits; ++i) values[begin + i] = word >> i & 1 ? values[begin + i] : -__builtin_inff();
  }
}

inline bool has_nan(const float* values, int32_t count) {
  bool found = false;
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) found |= any(is_nan(load16(values + i)));
  for (; i < count; ++i) found |= values[i] != values[i];
  return found;
}

// Writes z of every token to `values`, -inf for those that are no candidates. The maximum is -inf if the row fails.
inline RowScan adjust_logits(const SampleRow& row, const RowScan& raw, float* values) {
  const int32_t vocab_size = row.op.vocab_size;
  __builtin_memcpy(values, row.logits(), sizeof(float) * static_cast<size_t>(vocab_size));
  if (row.leaves_logits()) return raw;
  add_bias(row, values);
  if (row.has_penalties()) apply_penalties(row, values);
  ban_tokens(row, values);
  keep_allowed(row, values);
  return has_nan(values, vocab_size) ? RowScan{-__builtin_inff(), 0, false} : scan_row(values, vocab_size);
}

// values become weights; what is no candidate, or weighs less than min_p, becomes 0, the padding too.
inline void weigh(const SampleRow& row, float maximum, float* values) {
  const float temperature = row.op.temperature[row.row];
  const f32x16 top = splat16(maximum / temperature), none = splat16(0.0f), excluded = splat16(-__builtin_inff());
  const f32x16 least = splat16(row.op.min_p[row.row]);
  const int32_t padded = padded_vocab_size(row.op.vocab_size);
  for (int32_t i = row.op.vocab_size; i < padded; ++i) values[i] = -__builtin_inff();
  for (int32_t i = 0; i < padded; i += kLanes) {
    const f32x16 z = div(load16(values + i), splat16(temperature));
    const f32x16 weight = exp16(sub(z, top));
    store16(values + i, select(equal(z, excluded), none, select(less(weight, least), none, weight)));
  }
}

inline int32_t draw_from_list(const CandidateList& list, double u) {
  const double wanted = u * sum_weights(list);
  double running = 0.0;
  for (int32_t i = 0; i < list.count; ++i) {
    running += static_cast<double>(list.entries[i].weight());
    if (running > wanted) return list.entries[i].id;
  }
  return kNoToken;
}

// The running sums at the start of each block are kept, so that the second walk begins at the right block.
inline int32_t draw_from_all(const float* weights, int32_t count, double u, double* block_sums) {
  double total = 0.0;
  for (int32_t i = 0; i < count; ++i) {
    if (i % kDrawBlock == 0) block_sums[i / kDrawBlock] = total;
    total += static_cast<double>(weights[i]);
  }
  const double wanted = u * total;
  int32_t block = num_draw_blocks(count) - 1;
  while (block > 0 && block_sums[block] > wanted) --block;
  double running = block_sums[block];
  for (int32_t i = block * kDrawBlock; i < count; ++i) {
    running += static_cast<double>(weights[i]);
    if (running > wanted) return i;
  }
  return kNoToken;
}

// The token, or kNoToken if there is none to choose.
inline int32_t choose_token(const SampleRow& row, const RowScan& raw, SamplingScratch scratch) {
  const SampleOp& op = row.op;
  if (row.greedy() && row.leaves_logits()) return raw.argmax;
  const RowScan scan = adjust_logits(row, raw, scratch.values);
  if (!__builtin_isfinite(scan.maximum)) return kNoToken;
  if (row.greedy()) return scan.argmax;
  if (!__builtin_isfinite(scan.maximum / op.temperature[row.row])) return kNoToken;
  weigh(row, scan.maximum, scratch.values);
  const double u = sampling_uniform(op.seeds[row.row], static_cast<uint32_t>(op.positions[row.row]),
                                    static_cast<uint32_t>(op.choice_indices[row.row]));
  if (!row.cuts().any()) return draw_from_all(scratch.values, op.vocab_size, u, scratch.block_sums);
  if (select_candidates(scratch.values, padded_vocab_size(op.vocab_size), row.cuts(), scratch.list)) {
    return draw_from_list(scratch.list, u);
  }
  return draw_from_all(scratch.values, op.vocab_size, u, scratch.block_sums);
}

inline void sample_row(const SampleRow& row, const SamplingScratch& scratch) {
  const SampleOp& op = row.op;
  const RowScan raw = scan_row(row.logits(), op.vocab_size);
  const int32_t token = raw.finite ? choose_token(row, raw, scratch) : kNoToken;
  if (token == kNoToken) {
    op.token_ids[row.row] = 0;
    write_failed_row(op.out, row.row, op.num_top);
  } else {
    op.token_ids[row.row] = token;
    write_logprobs(op.out, row.row, op.num_top, {row.logits(), op.vocab_size, raw.maximum}, token);
  }
}

[[maybe_unused]] void sample(const SampleOp& op, Worker& worker) {
  const SamplingScratch scratch(worker.scratch, op.vocab_size);
  for (int64_t row = claim(worker, 1); row < op.num_rows; row = claim(worker, 1)) {
    sample_row({op, static_cast<int32_t>(row)}, scratch);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
