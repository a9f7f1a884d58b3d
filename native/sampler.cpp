#include "sampler.h"

#include "error.h"

namespace octavo {

namespace {

LogprobArrays arrays(const OctavoLogprobs& out) {
  return {out.logprobs, out.ranks, out.top_token_ids, out.top_logprobs, out.failed};
}

void check_counts(const OctavoSampling& s) {
  check(s.num_rows >= 0 && s.vocab_size > 0, "logits have no columns");
  check(s.num_top >= 0 && s.num_top <= s.vocab_size, "more top log-probabilities than tokens");
}

void check_token_ids(const int32_t* ids, int64_t count, int32_t vocab_size) {
  for (int64_t i = 0; i < count; ++i) check(ids[i] >= 0 && ids[i] < vocab_size, "a token id is outside the vocabulary");
}

void check_ranges(const int32_t* starts, int32_t num_rows, int32_t total) {
  check(starts[0] == 0 && starts[num_rows] == total, "per-row ranges must begin at 0 and end at the number of entries");
  for (int32_t i = 0; i < num_rows; ++i) check(starts[i] <= starts[i + 1], "per-row ranges must not decrease");
}

}  // namespace

void sample(const OctavoSampling& s, const KernelTable& kernels, ThreadPool& pool) {
  check_counts(s);
  check_ranges(s.bias_starts, s.num_rows, s.num_biases);
  check_ranges(s.banned_starts, s.num_rows, s.num_banned);
  check_token_ids(s.bias_token_ids, s.num_biases, s.vocab_size);
  check_token_ids(s.banned_token_ids, s.num_banned, s.vocab_size);
  for (int32_t i = 0; i < s.num_rows; ++i) {
    check(s.penalty_rows[i] >= -1 && s.penalty_rows[i] < s.num_penalty_rows, "a penalty row is not there");
    check(s.allowed_rows[i] >= -1 && s.allowed_rows[i] < s.num_allowed_rows, "a row of allowed tokens is not there");
  }
  const SampleOp op{.logits = s.logits, .num_rows = s.num_rows, .vocab_size = s.vocab_size, .num_top = s.num_top,
                    .temperature = s.temperature, .top_k = s.top_k, .top_p = s.top_p, .min_p = s.min_p,
                    .seeds = s.seeds, .choice_indices = s.choice_indices, .positions = s.positions,
                    .repetition_penalty = s.repetition_penalty, .frequency_penalty = s.frequency_penalty,
                    .presence_penalty = s.presence_penalty, .penalty_rows = s.penalty_rows,
                    .output_counts = s.output_counts, .prompt_tokens = s.prompt_tokens, .bias_starts = s.bias_starts,
                    .bias_token_ids = s.bias_token_ids, .bias_values = s.bias_values,
                    .banned_starts = s.banned_starts, .banned_token_ids = s.banned_token_ids,
                    .allowed_rows = s.allowed_rows, .allowed_tokens = s.allowed_tokens,
                    .token_ids = s.token_ids, .out = arrays(s.out)};
  pool.run([&](Worker& worker) { kernels.sample(op, worker); }, kernels.sample_scratch_bytes(s.vocab_size));
}

void logprobs(const OctavoSampling& s, const KernelTable& kernels, ThreadPool& pool) {
  check_counts(s);
  check_token_ids(s.token_ids, s.num_rows, s.vocab_size);
  const LogprobsOp op{s.logits, s.num_rows, s.vocab_size, s.num_top, s.token_ids, arrays(s.out)};
  pool.run([&](Worker& worker) { kernels.logprobs(op, worker); }, kernels.sample_scratch_bytes(s.vocab_size));
}

}  // namespace octavo
