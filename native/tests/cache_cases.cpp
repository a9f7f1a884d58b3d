// Ops over the paged cache: rope with the write of K and V, attention.
#include <utility>

#include "../half.h"
#include "../kv_store.h"
#include "digest_cases.h"

namespace octavo::digest {

namespace {

constexpr int32_t kLayer = 1;

struct CacheShape {
  KvDtype dtype;
  int32_t block_size;
  int32_t num_heads, num_kv_heads, head_dim;
};

std::string describe(const CacheShape& shape) {
  const char* dtype = shape.dtype == KvDtype::kInt8 ? "i8" : shape.dtype == KvDtype::kFloat16 ? "f16" : "f32";
  return std::string(dtype) + "/block=" + std::to_string(shape.block_size) +
         "/heads=" + std::to_string(shape.num_heads) + ":" + std::to_string(shape.num_kv_heads) + "x" +
         std::to_string(shape.head_dim);
}

// A request's share of a step: its last num_new tokens of seq_len.
struct Part {
  int32_t seq_len, num_new;
};

std::vector<int32_t> shuffled_blocks(Random& random, int32_t count) {
  std::vector<int32_t> blocks;
  for (int32_t block = 1; block <= count; ++block) blocks.push_back(block);
  for (int32_t i = count - 1; i > 0; --i) {
    std::swap(blocks[static_cast<size_t>(i)], blocks[static_cast<size_t>(random.below(i + 1))]);
  }
  return blocks;
}

// The step of these parts, its blocks scattered over the cache.
Step make_step(Random& random, const std::vector<Part>& parts, int32_t block_size) {
  Step step;
  int32_t num_blocks = 0, widest = 0;
  for (const Part& part : parts) {
    const int32_t blocks = (part.seq_len + block_size - 1) / block_size;
    num_blocks += blocks;
    widest = blocks > widest ? blocks : widest;
  }
  std::vector<int32_t> unused = shuffled_blocks(random, num_blocks);
  step.query_start_loc.push_back(0);
  for (const Part& part : parts) {
    const int32_t request = static_cast<int32_t>(step.seq_lens.size());
    for (int32_t i = part.seq_len - part.num_new; i < part.seq_len; ++i) {
      step.positions.push_back(i);
      step.request_of_row.push_back(request);
    }
    step.query_start_loc.push_back(static_cast<int32_t>(step.positions.size()));
    step.seq_lens.push_back(part.seq_len);
    for (int32_t i = 0; i < widest; ++i) {
      const bool exists = i * block_size < part.seq_len;
      step.block_tables.push_back(exists ? unused.back() : 0);
      if (exists) unused.pop_back();
    }
  }
  step.view.num_tokens = static_cast<int32_t>(step.positions.size());
  step.view.num_requests = static_cast<int32_t>(parts.size());
  step.view.max_blocks_per_request = widest;
  step.view.positions = step.positions.data();
  step.view.query_start_loc = step.query_start_loc.data();
  step.view.seq_lens = step.seq_lens.data();
  step.view.block_tables = step.block_tables.data();
  step.view.request_of_row = step.request_of_row.data();
  return step;
}

KvStore make_cache(const CacheShape& shape, const StepView& view) {
  const int32_t entries = view.num_requests * view.max_blocks_per_request;
  int32_t num_blocks = 1;  // the null block
  for (int32_t i = 0; i < entries; ++i) num_blocks += view.block_tables[i] != 0;
  const KvView layout{nullptr,           shape.dtype,    kLayer + 1,       num_blocks,
                      shape.num_kv_heads, shape.head_dim, shape.block_size, 0};
  return KvStore(layout);
}

template <class Element>
std::span<Element> elements(const KvStore& cache) {
  return {reinterpret_cast<Element*>(cache.view().base), static_cast<size_t>(cache.num_bytes()) / sizeof(Element)};
}

void fill_int8_cache(Random& random, KvStore& cache, bool hostile) {
  const KvView& view = cache.view();
  std::vector<float> block(static_cast<size_t>(2 * view.half_elements() * view.num_kv_heads));
  for (int32_t id = 0; id < view.num_blocks; ++id) {
    for (float& value : block) value = hostile && random.below(20'000) == 0 ? random.any_float() : random.uniform(2.0f);
    cache.write_block(kLayer, id, reinterpret_cast<const std::byte*>(block.data()));
  }
}

// Hostile: with a few NaN, infinities and huge values.
void fill_cache(Random& random, KvStore& cache, bool hostile) {
  const auto next = [&] { return hostile && random.below(20'000) == 0 ? random.any_float() : random.uniform(2.0f); };
  if (cache.view().dtype == KvDtype::kInt8) {
    fill_int8_cache(random, cache, hostile);
  } else if (cache.view().dtype == KvDtype::kFloat16) {
    for (uint16_t& value : elements<uint16_t>(cache)) value = float_to_half(next());
  } else {
    for (float& value : elements<float>(cache)) value = next();
  }
}

void add_cache(Digest& digest, const KvStore& cache) {
  if (cache.view().dtype == KvDtype::kInt8) {
    const KvView& view = cache.view();
    std::vector<float> block(static_cast<size_t>(2 * view.half_elements() * view.num_kv_heads));
    for (int32_t id = 0; id < view.num_blocks; ++id) {
      cache.read_block(kLayer, id, reinterpret_cast<std::byte*>(block.data()));
      digest.add(block);
    }
  } else if (cache.view().dtype == KvDtype::kFloat16) {
    digest.add_halves(elements<const uint16_t>(cache));
  } else {
    digest.add(elements<const float>(cache));
  }
}

const std::vector<Part>& parts() {
  static const std::vector<Part> mixed = {{520, 1}, {40, 40}, {5, 1}, {300, 13}, {257, 2}};
  return mixed;
}

// The table is random, because cosines of two C libraries may differ in the last bit.
void run_rope_case(Machine& machine, const CacheShape& shape, RopeStyle style, int32_t rotary_dim, bool any_input) {
  constexpr int32_t kPositions = 520;
  Random random(3);
  Step step = make_step(random, parts(), shape.block_size);
  const KvStore cache = make_cache(shape, step.view);
  step.view.kv = cache.view();
  const std::vector<float> cosines = random.floats(kPositions * (rotary_dim / 2), 1.0f);
  const std::vector<float> sines = random.floats(kPositions * (rotary_dim / 2), 1.0f);
  const RopeTable table{cosines.data(), sines.data(), kPositions};
  const int64_t heads = int64_t{step.view.num_tokens} * shape.head_dim;
  const int64_t inputs = heads * (shape.num_heads + 2 * shape.num_kv_heads);
  const std::vector<float> qkv = any_input ? random.any_floats(inputs) : random.floats(inputs, 4.0f);
  std::vector<float> out(static_cast<size_t>(heads * shape.num_heads));
  const RopeAndWriteKvOp op{.out = out.data(), .qkv = qkv.data(), .rope = &table, .style = style,
                            .rotary_dim = rotary_dim, .layer = kLayer, .num_heads = shape.num_heads,
                            .num_kv_heads = shape.num_kv_heads, .head_dim = shape.head_dim};
  machine.several.run([&](Worker& worker) { machine.kernels.rope_and_write_kv(op, step.view, worker); });
  Digest digest;
  digest.add(out);
  add_cache(digest, cache);
  report("rope_and_write_kv/" + describe(shape) + (style == RopeStyle::kInterleaved ? "/interleaved" : "/half_split") +
             "/rotary=" + std::to_string(rotary_dim) + (any_input ? "/any" : ""),
         digest);
}

struct AttentionCase {
  CacheShape shape;
  int32_t window;
  float soft_cap;
  bool hostile = false;
};

void run_attention_case(Machine& machine, const AttentionCase& attention, ThreadPool& pool) {
  const CacheShape& shape = attention.shape;
  Random random(4);
  Step step = make_step(random, parts(), shape.block_size);
  KvStore cache = make_cache(shape, step.view);
  fill_cache(random, cache, attention.hostile);
  step.view.kv = cache.view();
  const std::vector<float> q = random.floats(int64_t{step.view.num_tokens} * shape.num_heads * shape.head_dim, 2.0f);
  std::vector<float> out(q.size());
  const PagedAttentionOp op{.out = out.data(), .q = q.data(), .layer = kLayer, .num_heads = shape.num_heads,
                            .num_kv_heads = shape.num_kv_heads, .head_dim = shape.head_dim, .scale = 0.3f,
                            .window = attention.window, .soft_cap = attention.soft_cap};
  step.shared_scratch.resize(machine.kernels.attention_scratch_bytes(op, step.view, pool.size()));
  step.view.shared_scratch = step.shared_scratch.data();
  pool.run([&](Worker& worker) { machine.kernels.paged_attention(op, step.view, worker); });
  Digest digest;
  digest.add(out);
  report("paged_attention/" + describe(shape) + "/window=" + std::to_string(attention.window) +
             "/cap=" + std::to_string(static_cast<int32_t>(attention.soft_cap)) +
             "/workers=" + std::to_string(pool.size()) + (attention.hostile ? "/hostile" : ""),
         digest);
}

}  // namespace

void run_cache_cases(Machine& machine) {
  constexpr KvDtype kHalf = KvDtype::kFloat16, kFloat = KvDtype::kFloat32, kInt8 = KvDtype::kInt8;
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit}) {
    run_rope_case(machine, {kHalf, 16, 3, 1, 64}, style, 64, false);
    run_rope_case(machine, {kHalf, 8, 2, 2, 80}, style, 40, false);
    run_rope_case(machine, {kHalf, 16, 1, 1, 24}, style, 24, true);
    run_rope_case(machine, {kFloat, 32, 2, 1, 24}, style, 24, false);
    run_rope_case(machine, {kInt8, 16, 3, 1, 64}, style, 64, false);
    run_rope_case(machine, {kInt8, 8, 2, 2, 80}, style, 40, true);
  }
  const std::vector<AttentionCase> cases = {
      {{kHalf, 16, 6, 2, 64}, 0, 0.0f},    {{kFloat, 16, 6, 2, 64}, 0, 0.0f},  {{kHalf, 32, 2, 2, 80}, 100, 0.0f},
      {{kHalf, 8, 4, 2, 64}, 0, 0.0f},     {{kFloat, 8, 4, 1, 24}, 70, 5.0f},  {{kHalf, 24, 5, 1, 96}, 0, 20.0f},
      {{kHalf, 16, 6, 1, 128}, 300, 9.0f}, {{kFloat, 64, 7, 1, 64}, 1, 0.0f},  {{kHalf, 16, 2, 1, 256}, 0, 0.0f},
      {{kFloat, 32, 1, 1, 8}, 33, 3.0f},   {{kHalf, 256, 8, 1, 64}, 65, 0.0f},
      {{kFloat, 16, 6, 2, 64}, 0, 0.0f, true}, {{kHalf, 8, 4, 1, 24}, 90, 9.0f, true},
      {{kInt8, 16, 6, 2, 64}, 0, 0.0f},    {{kInt8, 32, 2, 2, 80}, 100, 0.0f}, {{kInt8, 8, 4, 2, 64}, 0, 0.0f},
      {{kInt8, 24, 5, 1, 96}, 0, 20.0f},   {{kInt8, 16, 7, 1, 128}, 300, 9.0f}, {{kInt8, 16, 2, 1, 256}, 0, 0.0f},
      {{kInt8, 64, 7, 1, 16}, 1, 0.0f},    {{kInt8, 16, 6, 2, 64}, 90, 0.0f, true},
  };
  for (const AttentionCase& attention : cases) {
    run_attention_case(machine, attention, machine.single);
    run_attention_case(machine, attention, machine.several);
  }
}

}  // namespace octavo::digest
