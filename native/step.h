// What a kernel sees: one step's rows, the KV cache, its op, and the worker that runs it.
// Plain data only. All pointers were validated when they came in; kernels check nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv_ahead.h"
#include "low_rank.h"

namespace octavo {

// Into which cache of its own a worker asks for the weights that it reads next, and how far ahead.
enum class WeightPrefetch : int32_t {
  kFirstLevel,   // several groups
  kSecondLevel,  // several groups; what a single row reads such a processor foresees, and better: that asks where it jumps alone
  kJustAhead,    // into the first level, a kilobyte: its processor foresees the rest
};

enum class KvDtype : int32_t { kFloat16 = 0, kFloat32 = 1, kInt8 = 2 };

constexpr int64_t element_bytes(KvDtype dtype) {
  return dtype == KvDtype::kInt8 ? 1 : dtype == KvDtype::kFloat16 ? 2 : 4;
}

// Layout [layer][block][kv_head]{K, V}, K being tiles of `tile` tokens: tile = 16 if the block size allows it, else 8
// (then two neighbouring blocks or half blocks make 16 lanes).
// Floats: element (t, d) of K lies at (t / tile · head_dim + d) · tile + t % tile; V is [block_size][head_dim].
// int8: quads of elements take the place of an element of K, and quads of tokens that of a token of V, so that one
// instruction multiplies and adds four of them. Behind V, float32 scales of the tokens' K, and then of their V.
struct KvView {
  std::byte* base;
  KvDtype dtype;
  int32_t num_layers;
  int32_t num_blocks;  // the null block included
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t block_size;
  int32_t tile;

  // Elements of K (or V) of one head in one block.
  int64_t half_elements() const { return static_cast<int64_t>(block_size) * head_dim; }
  int64_t scale_bytes() const { return dtype == KvDtype::kInt8 ? 2 * int64_t{block_size} * int64_t{sizeof(float)} : 0; }
  int64_t head_bytes() const { return 2 * half_elements() * element_bytes(dtype) + scale_bytes(); }
  int64_t block_bytes() const { return num_kv_heads * head_bytes(); }  // in one layer

  std::byte* block(int32_t layer, int32_t block_id) const {
    return base + (static_cast<int64_t>(layer) * num_blocks + block_id) * block_bytes();
  }
  // K of one head in one block.
  std::byte* head(int32_t layer, int32_t block_id, int32_t kv_head) const {
    return block(layer, block_id) + kv_head * head_bytes();
  }
  // Of the elements of a head, from its K on.
  int64_t key_offset(int32_t token, int32_t d) const {
    if (dtype == KvDtype::kInt8) return (int64_t{token / tile} * head_dim + d - d % 4) * tile + token % tile * 4 + d % 4;
    return (int64_t{token / tile} * head_dim + d) * tile + token % tile;
  }
  int64_t value_offset(int32_t token, int32_t d) const {
    if (dtype == KvDtype::kInt8) return half_elements() + (int64_t{token / 4} * head_dim + d) * 4 + token % 4;
    return half_elements() + int64_t{token} * head_dim + d;
  }
  // int8: of the token's K from the head on, in bytes; that of its V follows block_size later.
  int64_t scale_offset(int32_t token) const { return 2 * half_elements() + token * int64_t{sizeof(float)}; }
};

// Attention's units of work along a sequence, by absolute position (ADR 0001).
constexpr int32_t kPartitionTokens = 256;

// Partitions of K and V that several requests have in common, read once for the rows of all of them.
struct SharedPass {
  int32_t first_row, num_rows;  // of SharedPassView::rows
  int32_t partition_begin, partition_end;
  int32_t parent;      // the pass of the same rows and others over the partitions before; -1: none
  int64_t first_unit;  // units of the passes before; a unit is one row of the step in one partition
};

struct RequestPasses {
  int32_t deepest;    // its pass with the highest partitions, whose parents are all its others; -1: none
  int32_t first_row;  // of SharedPassView::rows
};

// Passes of one step; every layer without a window has the same.
struct SharedPassView {
  const SharedPass* passes;
  int32_t num_passes;
  const int32_t* rows;               // rows of the step, those of a pass and of a request side by side
  const RequestPasses* of_request;  // [num_requests]; only if there are passes
  int64_t num_units;
};

// One step's rows; request i owns rows query_start_loc[i] … query_start_loc[i + 1] - 1.
struct StepView {
  int32_t num_tokens;
  int32_t num_requests;
  int32_t num_logit_rows;
  int32_t max_blocks_per_request;
  const int32_t* token_ids;        // [num_tokens]
  const int32_t* positions;        // [num_tokens], consecutive within a request
  const int32_t* query_start_loc;  // [num_requests + 1]
  const int32_t* seq_lens;         // [num_requests], tokens in the cache once the step is done
  const int32_t* block_tables;     // [num_requests, max_blocks_per_request]
  const int32_t* logit_rows;       // [num_logit_rows]
  const int32_t* request_of_row;   // [num_tokens]
  KvView kv;
  SharedPassView shared;
  std::byte* shared_scratch;  // one for all workers, as large as KernelTable::attention_scratch_bytes asked for
  AdapterStepView adapters;

  const int32_t* block_table(int32_t request) const {
    return block_tables + static_cast<int64_t>(request) * max_blocks_per_request;
  }
};

constexpr int32_t kMaxHeadDim = 256;
constexpr size_t kWorkerScratchBytes = size_t{1} << 20;

// One of the threads that run an op together. All of them call the op's kernel with the same arguments.
struct alignas(64) Worker {
  int32_t index;       // 0 … count - 1
  int32_t count;
  std::byte* scratch;  // kWorkerScratchBytes or more of its own, 64-byte aligned, content undefined
  void* pool;
  uint32_t phase;    // the pool's: barriers that this worker has come to
  bool holds_piece;  // of that phase
  const std::byte* next_weights;  // what the next linear layer has it read first; null if that does not matter
  KvAhead kv_ahead;  // what linear layers of many rows ask for while they compute
  WeightPrefetch weight_prefetch;
};

// Hands out 0, 1, 2, … among the workers, `count` numbers at a time (2^31 in all); the first of them is returned. The
// numbers claimed before are done then. Work is over when the number is at or beyond the op's total. Starts at 0
// after every barrier.
int64_t claim(Worker& worker, int64_t count);

constexpr int64_t kPhaseIsOver = INT64_MAX;

// Hands out 0 … size - 1 of the pieces that are `owner`'s, to whoever asks, each once, in order. Afterwards size or more is
// returned, kPhaseIsOver if nobody has anything left. A phase, what is between two barriers, has one kind of claim alone, and an
// owner always the same size in it.
int64_t claim_of(Worker& worker, int32_t owner, int64_t size);

struct ClaimedPiece {
  int32_t owner;
  int64_t number;  // of the owner's
};

// A worker's own pieces first, then what is left of others'. size_of(owner) is how many an owner has. False: none is left.
template <class SizeOf>
[[gnu::always_inline]] inline bool claim_shared_out(Worker& worker, SizeOf size_of, ClaimedPiece& piece) {
  for (int32_t i = 0; i < worker.count; ++i) {
    const int32_t owner = (worker.index + i) % worker.count;
    const int64_t size = size_of(owner);
    if (size == 0) continue;
    piece = {owner, claim_of(worker, owner, size)};
    if (piece.number < size) return true;
    if (piece.number == kPhaseIsOver) return false;
  }
  return false;
}

// Where the share of a worker begins, and that of the one before it ends, if all have the same.
inline int64_t share_begin(int64_t count, int32_t worker, int32_t num_workers) { return count * worker / num_workers; }
inline int64_t share_size(int64_t count, int32_t worker, int32_t num_workers) {
  return share_begin(count, worker + 1, num_workers) - share_begin(count, worker, num_workers);
}

// Hands out 0 … count - 1, each once, a worker's own share from front to back, then what is left of others'. Afterwards
// count or more is returned.
[[gnu::always_inline]] inline int64_t claim_nearby(Worker& worker, int64_t count) {
  ClaimedPiece piece;
  const auto size_of = [&](int32_t owner) { return share_size(count, owner, worker.count); };
  return claim_shared_out(worker, size_of, piece) ? share_begin(count, piece.owner, worker.count) + piece.number : kPhaseIsOver;
}

// Returns once all that was claimed since the last one is done, and visible. Before, a worker has to have claimed until
// nothing was left. The driver places one after every op, so a kernel needs it only between phases of its own.
void barrier(Worker& worker);

// Which rows an op runs over.
enum class RowSet : int32_t { kTokens = 0, kLogitRows = 1 };

inline int32_t num_rows(const StepView& step, RowSet rows) {
  return rows == RowSet::kTokens ? step.num_tokens : step.num_logit_rows;
}

struct QuantizedGroup;  // linear.h

// Buffers are [rows, width] float32, rows contiguous, 64-byte aligned at row 0 only. An op with `quantized` also
// leaves its rows as int8 there, [rows, width / 32], for the integer linears that read them; it is null if there are
// none, and `out` is null if nobody else reads the rows. Quantised rows are whole groups of 32.

struct RmsNormOp {
  float* out;
  QuantizedGroup* quantized;
  const float* x;
  const float* weight;  // [width]
  int32_t width;
  float eps;
  bool accumulate;  // add to what `out` holds; then `quantized` is null
};

// Cosines and sines of positions 0 … num_positions - 1, each [num_positions, rotary_dim / 2].
struct RopeTable {
  const float* cosines;
  const float* sines;
  int32_t num_positions;
};

enum class RopeStyle : int32_t { kInterleaved = 0, kHalfSplit = 1 };

struct RopeAndWriteKvOp {
  float* out;        // [num_tokens, num_heads * head_dim]; of `int8_queries` each is one in its head's place
  const float* qkv;  // [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]
  const RopeTable* rope;
  RopeStyle style;
  int32_t rotary_dim;
  int32_t layer;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  const float* query_norm;  // [head_dim] or null
  const float* key_norm;
  float eps;
  bool int8_queries;  // what the attention op that reads them would make of them itself
  float query_scale;  // of that op
};

struct PagedAttentionOp {
  float* out;      // [num_tokens, num_heads * head_dim]
  QuantizedGroup* quantized;  // only if head_dim is a multiple of 32
  const float* q;  // the same shape
  bool int8_queries;  // q holds an Int8Query in each head's place
  int32_t layer;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  float scale;
  int32_t window;  // 0: none
  float soft_cap;  // 0: none
};

enum class Activation : int32_t { kSilu = 0, kGeluTanh = 1 };

struct GatedActivationOp {
  float* out;            // [num_tokens, width]
  QuantizedGroup* quantized;
  const float* gate_up;  // [num_tokens, 2 * width]
  int32_t width;
  Activation activation;
};

// values = cap · tanh(values / cap), in place, over the logit rows.
struct SoftCapOp {
  float* values;  // [num_logit_rows, width]
  int32_t width;
  float cap;
};

// Sampling; every array as octavo.kernels.sampling.SamplingInput describes it.
struct LogprobArrays {
  float* logprobs;        // [num_rows], or null: `failed` is all that is written
  int32_t* ranks;         // [num_rows]
  int32_t* top_token_ids; // [num_rows, num_top]
  float* top_logprobs;    // [num_rows, num_top]
  uint8_t* failed;        // [num_rows]
};

struct SampleOp {
  const float* logits;  // [num_rows, vocab_size]
  int32_t num_rows;
  int32_t vocab_size;
  int32_t num_top;
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
  const int32_t* allowed_rows;     // [num_rows]; the row's index into allowed_tokens, or -1: all are
  const uint32_t* allowed_tokens;  // [.., ceil(vocab_size / 32)]; bit t % 32 of word t / 32 is token t
  int32_t* token_ids;  // [num_rows], out
  LogprobArrays out;
};

struct LogprobsOp {
  const float* logits;  // [num_rows, vocab_size]
  int32_t num_rows;
  int32_t vocab_size;
  int32_t num_top;
  const int32_t* token_ids;  // [num_rows]
  LogprobArrays out;
};

}  // namespace octavo
