// The C ABI of the native kernels: what Python loads with ctypes (src/octavo/kernels/native_library.py mirrors it).
//
// Functions that can fail return 0, or another code and leave a message in octavo_last_error() of the calling thread. Handles
// are opaque; the caller keeps what a handle was made from alive and destroys users before what they use.
// Numbers that choose something (quantisation, op kind, …) are those of the enums in the C++ headers.
#pragma once

#include <stdint.h>

#define OCTAVO_ABI_VERSION 8
#define OCTAVO_BAD_WEIGHT 2  // the code if a weight of the model is at fault; every other failure is 1
#define OCTAVO_API extern "C" [[gnu::visibility("default")]]

struct OctavoKvShape {
  int32_t num_layers;
  int32_t num_blocks;  // the null block included
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t block_size;
  int32_t dtype;
};

struct OctavoWeight {
  const void* bytes;  // as the model file stores them; read until the program is destroyed
  int64_t num_bytes;
  int64_t rows;  // 1 for a vector
  int64_t columns;
  const char* name;  // for messages
  int32_t quantization;
};

struct OctavoRope {
  const double* frequencies;
  double magnitude;
  int32_t num_frequencies;
  int32_t style;
};

struct OctavoOp {
  int32_t kind;
  int32_t out;     // slot
  int32_t x;       // slot
  int32_t weight;  // index into weights
  int32_t first_part, num_parts;  // range of OctavoProgramSpec::parts
  int32_t bias;    // index into weights, or -1
  int32_t accumulate;
  int32_t layer, num_heads, num_kv_heads, head_dim;
  int32_t rope;    // index into ropes
  int32_t query_norm, key_norm;  // indices into weights, or -1
  int32_t window;  // 0: none
  int32_t router;  // slot
  int32_t num_experts, top_k, normalized;  // parts: gate, up and down of expert 0, then those of expert 1, …
  int32_t activation;
  float scale;
  float eps;
  float soft_cap;  // 0: none
};

// What an adapter adds to one part of a linear: out += (x · aᵀ) · bᵀ · scale.
struct OctavoLowRank {
  const float* a;   // [rank, columns of the part's weight]
  const float* b;   // [rows of the part's weight, rank]
  int32_t linear;   // number among the program's linears
  int32_t part;     // of that linear
  int32_t rank;
  float scale;
};

struct OctavoProgramSpec {
  const OctavoOp* ops;
  const int32_t* slot_widths;
  const OctavoWeight* weights;
  const int32_t* parts;  // indices into weights
  const OctavoRope* ropes;
  int32_t num_ops, num_slots, num_weights, num_parts, num_ropes;
  int32_t max_num_tokens;
  int32_t max_logit_rows;
  const char* isa;
  void (*progress)(int64_t bytes_done, int64_t bytes_total);  // may be null; called between weights
};

struct OctavoStep {
  const int32_t* token_ids;
  const int32_t* positions;
  const int32_t* query_start_loc;
  const int32_t* seq_lens;
  const int32_t* block_tables;
  const int32_t* logit_rows;
  const int32_t* adapters;  // [num_requests], the slot of each request's adapter or -1; null if there are none
  int32_t num_tokens, num_requests, max_blocks_per_request, num_logit_rows;
  int32_t only_logit_rows;  // of the others nothing but K and V is wanted; then rows are in order, consecutive in a request
};

struct OctavoLogprobs {
  float* logprobs;
  int32_t* ranks;
  int32_t* top_token_ids;
  float* top_logprobs;
  uint8_t* failed;
};

struct OctavoSampling {
  const float* logits;
  int32_t num_rows, vocab_size, num_top, num_penalty_rows;
  const float* temperature;
  const int32_t* top_k;
  const float* top_p;
  const float* min_p;
  const uint64_t* seeds;
  const int32_t* choice_indices;
  const int32_t* positions;
  const float* repetition_penalty;
  const float* frequency_penalty;
  const float* presence_penalty;
  const int32_t* penalty_rows;
  const int32_t* output_counts;
  const uint8_t* prompt_tokens;
  const int32_t* bias_starts;
  const int32_t* bias_token_ids;
  const float* bias_values;
  const int32_t* banned_starts;
  const int32_t* banned_token_ids;
  const int32_t* allowed_rows;     // -1, or the row of allowed_tokens: a bit per token, in words of 32
  const uint32_t* allowed_tokens;
  int32_t num_biases, num_banned, num_allowed_rows;
  int32_t* token_ids;  // out
  OctavoLogprobs out;
};

OCTAVO_API int32_t octavo_abi_version(void);
OCTAVO_API const char* octavo_last_error(void);

// Names, the best first, separated by commas: what was compiled, and what of it this processor can run.
OCTAVO_API const char* octavo_compiled_isas(void);
OCTAVO_API const char* octavo_available_isas(void);

OCTAVO_API int32_t octavo_pool_create(int32_t num_threads, void** pool);
OCTAVO_API void octavo_pool_destroy(void* pool);

OCTAVO_API int32_t octavo_kv_create(const OctavoKvShape* shape, void** kv);
OCTAVO_API void octavo_kv_destroy(void* kv);
OCTAVO_API int64_t octavo_kv_num_bytes(void* kv);
// The pool is that of the programs that use the cache: what has begun is given up, for it may write to the block.
OCTAVO_API int32_t octavo_kv_read_block(void* kv, void* pool, int32_t layer, int32_t block, void* logical);
OCTAVO_API int32_t octavo_kv_write_block(void* kv, void* pool, int32_t layer, int32_t block, const void* logical);
OCTAVO_API int32_t octavo_kv_copy_blocks(void* kv, void* pool, const int32_t* pairs, int64_t num_pairs);

OCTAVO_API int32_t octavo_program_create(const OctavoProgramSpec* spec, void* pool, void* kv, void** program);
OCTAVO_API void octavo_program_destroy(void* program);
OCTAVO_API int32_t octavo_program_step(void* program, const OctavoStep* step);
// The same, and a token for each of its logit rows: sampling->logits is not read. If it is a decoding step of few rows after
// which no request needs a block, and no row failed, the pool's other threads begin with the step that follows if nothing happens.
// Rows and logits of this step are then gone. If the next step is another one, or anything else is run on the pool, what was
// begun is given up, and the cache's slots behind the ends of the requests hold anything.
OCTAVO_API int32_t octavo_program_step_and_sample(void* program, const OctavoStep* step, const OctavoSampling* sampling);
OCTAVO_API int32_t octavo_program_logits(void* program, const int32_t* rows, int32_t num_rows);
// [rows of the last step or logits call, vocabulary]; moves when a call needs more rows than any before.
OCTAVO_API const float* octavo_program_logits_data(void* program);
// [max_num_tokens, width of the slot]; null if there is no such slot, or the next step has begun and its rows are gone.
OCTAVO_API float* octavo_program_slot_data(void* program, int32_t slot);
OCTAVO_API int64_t octavo_program_weight_bytes(void* program);
// Puts a copy of an adapter in a slot that requests may name, instead of what was there; without pairs it is emptied.
OCTAVO_API int32_t octavo_program_set_adapter(void* program, int32_t slot, const OctavoLowRank* pairs, int32_t num_pairs);
OCTAVO_API int64_t octavo_program_adapter_bytes(void* program);
// Whether requests that begin with the same blocks read them together, as they do at first. Changes no bit.
OCTAVO_API void octavo_program_share_passes(void* program, int32_t share);
// Whether octavo_program_step_and_sample begins with the next step: 0 never, 1 unless other processes keep the processors busy
// (as it is at first), 2 always. Changes no bit.
OCTAVO_API void octavo_program_begin_early(void* program, int32_t when);
// Since the start: steps that had begun when they were asked for.
OCTAVO_API int64_t octavo_program_num_early_steps(void* program);
// Of the last step: runs of partitions that several requests read together.
OCTAVO_API int32_t octavo_program_num_shared_passes(void* program);

OCTAVO_API int32_t octavo_sample(void* pool, const char* isa, const OctavoSampling* sampling);
OCTAVO_API int32_t octavo_logprobs(void* pool, const char* isa, const OctavoSampling* sampling);

// One run of a probe: 0 reads `num_bytes` (a multiple of 1 MiB) once, 1 and 2 do float and integer arithmetic,
// `repetitions` times per thread; `operations` receives the multiplications and additions of one of them. With 3, two threads
// answer each other that often; one alone does nothing. 4 is 0, but asks for lines ahead of itself.
OCTAVO_API int32_t octavo_probe(void* pool, const char* isa, int32_t kind, const void* bytes, int64_t num_bytes,
                                int64_t repetitions, int64_t* operations);
