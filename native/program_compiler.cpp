// Turns an OctavoProgramSpec into ops with pointers: checks it, packs the weights, lays out the buffers, places the
// quantisation of activations and fuses what saves a barrier.
#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <utility>

#include "error.h"
#include "program.h"
#include "program_spec.h"
#include "weight_layout.h"

namespace octavo {

namespace {

constexpr size_t kAlignment = 64;

// Where an op's rows go. One of the two may be null.
struct RowTargets {
  float* floats;
  QuantizedGroup* quantized;
};

class Compiler {
 public:
  Compiler(const OctavoProgramSpec& spec, ThreadPool& pool, const KvStore* kv) : spec_(spec), pool_(pool), kv_(kv) {}

  CompiledProgram compile() {
    check(spec_->max_num_tokens > 0, "max_num_tokens must be at least 1");
    spec_.check_weights();
    lay_out_vectors();
    pack_weights();
    lay_out_buffers();
    for (int32_t i = 0; i < spec_->num_ropes; ++i) add_rope(spec_->ropes[i]);
    with_adapters_ = true;
    add_ops();
    out_.adapter_ops = std::exchange(out_.ops, {});
    out_.head_ops.clear();
    with_adapters_ = false;
    add_ops();
    out_.experts.allocate();
    return std::move(out_);
  }

 private:
  // ---- what the spec refers to, checked ----

  float* slot(int32_t index, int64_t wanted_width) const {
    if (spec_.width(index) != wanted_width) {
      throw Error("an op wants a buffer of " + std::to_string(wanted_width) + " columns, it has " +
                  std::to_string(spec_.width(index)));
    }
    return out_.slots[static_cast<size_t>(index)];
  }

  const float* vector(int32_t index, int64_t wanted_width) const {
    const OctavoWeight& w = spec_.weight(index);
    check(w.rows == 1 && w.columns == wanted_width, "a vector does not have its buffer's width");
    return out_.vectors.data() + vector_offsets_.at(index);
  }

  // ---- memory ----

  void add_vector(int32_t index) {
    if (index < 0 || vector_offsets_.contains(index)) return;
    const RawWeight w = spec_.raw(index);
    check(w.rows == 1, "a norm weight or bias must be a vector");
    const size_t offset = out_.vectors.size();
    out_.vectors.resize(offset + static_cast<size_t>(w.columns));
    dequantize_row(w.quantization, w.bytes, w.columns, out_.vectors.data() + offset);
    const auto added = out_.vectors.begin() + static_cast<std::ptrdiff_t>(offset);
    if (!std::all_of(added, out_.vectors.end(), [](float value) { return std::isfinite(value); })) throw not_finite(index);
    vector_offsets_.emplace(index, offset);
  }

  void lay_out_vectors() {
    for (int32_t i = 0; i < spec_->num_ops; ++i) {
      const OctavoOp& op = spec_->ops[i];
      if (static_cast<OpKind>(op.kind) == OpKind::kRmsNorm) add_vector(op.weight);
      if (static_cast<OpKind>(op.kind) == OpKind::kLinear) add_vector(op.bias);
      if (static_cast<OpKind>(op.kind) == OpKind::kRopeAndWriteKv) add_vector(op.query_norm), add_vector(op.key_norm);
    }
  }

  WeightError not_finite(int32_t index) const {
    const std::string name = spec_.weight(index).name;
    return WeightError("tensor '" + name + "' holds a NaN or an infinity: the file is damaged");
  }

  void pack_weights() {
    const WeightLayout layout = lay_out_weights(spec_);
    out_.weights = HugeMemory(static_cast<size_t>(layout.bytes));
    int64_t done = 0;
    for (const PlacedWeight& weight : layout.weights) {
      std::byte* const place = out_.weights.data() + weight.offset;
      if (!pack_panels(spec_.raw(weight.index), weight.panels, place, pool_)) throw not_finite(weight.index);
      panels_.emplace(weight.index, weight.panels).first->second.data = place;
      done += panel_bytes(weight.panels);
      if (spec_->progress != nullptr) spec_->progress(done, layout.bytes);
    }
  }

  void lay_out_buffers() {
    const size_t rows = static_cast<size_t>(spec_->max_num_tokens);
    std::vector<size_t> offsets;
    size_t total = 0;
    for (int32_t i = 0; i < spec_->num_slots; ++i) {
      check(spec_.width(i) > 0, "a buffer has no columns");
      offsets.push_back(total);
      total += round_up(rows * static_cast<size_t>(spec_.width(i)) * sizeof(float), kAlignment);
    }
    // Quantised copies: pages of those that are never used are never touched.
    std::vector<size_t> quantized_offsets;
    for (int32_t i = 0; i < spec_->num_slots; ++i) {
      quantized_offsets.push_back(total);
      total += rows * static_cast<size_t>(spec_.width(i) / kGroupSize) * sizeof(QuantizedGroup);
    }
    out_.buffers = HugeMemory(total);
    for (size_t i = 0; i < offsets.size(); ++i) {
      out_.slots.push_back(reinterpret_cast<float*>(out_.buffers.data() + offsets[i]));
      quantized_.push_back(reinterpret_cast<QuantizedGroup*>(out_.buffers.data() + quantized_offsets[i]));
    }
  }

  // ---- ops ----

  void add_rope(const OctavoRope& rope) {
    check(rope.num_frequencies >= 0, "a rope has a negative number of frequencies");
    out_.ropes.emplace_back(std::vector<double>(rope.frequencies, rope.frequencies + rope.num_frequencies), rope.magnitude);
  }

  void add_ops() {
    is_quantized_.assign(out_.slots.size(), false);
    holds_int8_queries_.assign(out_.slots.size(), false);
    for (int32_t i = 0; i < spec_->num_ops; i += add_op(spec_->ops[i])) continue;
  }

  // Adds an op, or several in one, and returns how many.
  int32_t add_op(const OctavoOp& op) {
    check(out_.head_ops.empty(), "the output head must be the last op");
    if (static_cast<OpKind>(op.kind) == OpKind::kLogits) return add_logits(op), 1;
    static_cast<void>(spec_.width(op.out));
    is_quantized_[static_cast<size_t>(op.out)] = false;
    if (static_cast<OpKind>(op.kind) != OpKind::kKeepLogitRows) holds_int8_queries_[static_cast<size_t>(op.out)] = false;
    switch (static_cast<OpKind>(op.kind)) {
      case OpKind::kInput: break;
      case OpKind::kEmbed: add_embed(op); break;
      case OpKind::kRmsNorm: add_rms_norm(op); break;
      case OpKind::kLinear: return add_linear(op);
      case OpKind::kRopeAndWriteKv: add_rope_and_write_kv(op); break;
      case OpKind::kPagedAttention: add_paged_attention(op); break;
      case OpKind::kMixtureOfExperts: add_experts(op); break;
      case OpKind::kKeepLogitRows: add_keep_logit_rows(op); break;
      case OpKind::kGatedActivation: out_.ops.push_back(gated_activation(op)); break;
      default: throw Error("unknown op kind " + std::to_string(op.kind));
    }
    return 1;
  }

  // For an op that can quantise the rows that it makes. `unit` is how many columns it makes together.
  RowTargets row_targets(const OctavoOp& op, int32_t unit) {
    const Readers readers = spec_.readers_of(op);
    const size_t out = static_cast<size_t>(op.out);
    is_quantized_[out] = readers.integer_linears && unit % kGroupSize == 0;
    if (!is_quantized_[out]) return {out_.slots[out], nullptr};
    // Adapters read a linear's input in float32.
    return {readers.others || with_adapters_ ? out_.slots[out] : nullptr, quantized_[out]};
  }

  void add_embed(const OctavoOp& op) {
    const RawWeight table = spec_.raw(op.weight);
    out_.ops.push_back(EmbedOp{slot(op.out, table.columns), table, op.scale});
    const int32_t rows = static_cast<int32_t>(table.rows);
    out_.vocab_size = out_.vocab_size == 0 ? rows : std::min(out_.vocab_size, rows);
  }

  void add_rms_norm(const OctavoOp& op) {
    const int32_t columns = spec_.width(op.x);
    static_cast<void>(slot(op.out, columns));
    const bool accumulate = op.accumulate != 0;
    check(!accumulate || op.x != op.out, "a norm cannot be added to its input");
    const RowTargets out = accumulate ? RowTargets{slot(op.out, columns), nullptr} : row_targets(op, columns);
    out_.ops.push_back(RmsNormOp{out.floats, out.quantized, slot(op.x, columns), vector(op.weight, columns), columns,
                                 op.eps, accumulate});
  }

  // A buffer is quantised at most once between two writes to it.
  const QuantizedGroup* quantize(int32_t x) {
    const size_t index = static_cast<size_t>(x);
    if (!is_quantized_[index]) {
      out_.ops.push_back(QuantizeRowsOp{quantized_[index], out_.slots[index], spec_.width(x), RowSet::kTokens});
      is_quantized_[index] = true;
    }
    return quantized_[index];
  }

  const std::vector<Panels>& add_parts(const OctavoOp& op, int32_t depth) {
    std::vector<Panels>& parts = out_.parts.emplace_back();
    for (const int32_t index : spec_.parts_of(op)) {
      parts.push_back(panels_.at(index));
      check(parts.back().depth == depth, "a linear's weight does not have its input's width");
    }
    return parts;
  }

  int32_t add_linear(const OctavoOp& op) {
    const int32_t depth = spec_.width(op.x);
    const std::vector<Panels>& parts = add_parts(op, depth);
    int64_t columns = 0;
    for (const Panels& part : parts) columns += part.num_columns;
    check(op.x != op.out, "a linear cannot overwrite its input");
    LinearOp linear{slot(op.out, columns), static_cast<int32_t>(columns), slot(op.x, depth), nullptr, depth,
                    parts.data(), static_cast<int32_t>(parts.size()), nullptr, op.accumulate != 0, RowSet::kTokens, nullptr};
    if (spec_.has_parts(op, true)) linear.quantized = quantize(op.x);
    if (op.bias >= 0) linear.bias = vector(op.bias, columns);
    if (with_adapters_) return out_.ops.push_back(linear), add_low_rank(linear), 1;
    const bool gated = spec_.is_gated(op);
    if (gated) linear.gated = &out_.gated.emplace_back(gated_activation(*(&op + 1)));
    out_.ops.push_back(linear);
    return gated ? 2 : 1;
  }

  // What adapters add to a linear, once it is complete.
  void add_low_rank(const LinearOp& linear) {
    const int32_t number = static_cast<int32_t>(out_.linears.size());
    AdaptableLinear& adaptable = out_.linears.emplace_back(AdaptableLinear{linear.depth, {}});
    for (int32_t i = 0; i < linear.num_parts; ++i) adaptable.part_columns.push_back(linear.parts[i].num_columns);
    out_.ops.push_back(LowRankProductOp{linear.x, linear.depth, number});
    out_.ops.push_back(LowRankAddOp{linear.out, linear.out_width, number});
  }

  void check_heads(const OctavoOp& op) const {
    check(kv_ != nullptr, "the program attends, but there is no KV cache");
    const KvView& kv = kv_->view();
    check(op.layer >= 0 && op.layer < kv.num_layers, "an op's layer is not in the KV cache");
    check(op.num_kv_heads == kv.num_kv_heads && op.head_dim == kv.head_dim, "an op's K/V heads are not those of the KV cache");
    check(op.num_heads > 0 && op.num_heads % op.num_kv_heads == 0, "the heads do not divide among the K/V heads");
  }

  void add_rope_and_write_kv(const OctavoOp& op) {
    check_heads(op);
    check(op.rope >= 0 && op.rope < spec_->num_ropes, "an op names a rope that is not there");
    const OctavoRope& rope = spec_->ropes[op.rope];
    check(2 * rope.num_frequencies <= op.head_dim, "a rope turns more elements than a head has");
    const float* query_norm = op.query_norm < 0 ? nullptr : vector(op.query_norm, op.head_dim);
    const float* key_norm = op.key_norm < 0 ? nullptr : vector(op.key_norm, op.head_dim);
    const OctavoOp* reader = int8_reader_of(op);
    const int64_t qkv_width = (int64_t{op.num_heads} + 2 * int64_t{op.num_kv_heads}) * op.head_dim;
    out_.ops.push_back(RopeAndWriteKvOp{slot(op.out, int64_t{op.num_heads} * op.head_dim), slot(op.x, qkv_width),
                                        &out_.ropes[static_cast<size_t>(op.rope)].table(),
                                        static_cast<RopeStyle>(rope.style), 2 * rope.num_frequencies, op.layer,
                                        op.num_heads, op.num_kv_heads, op.head_dim, query_norm, key_norm, op.eps,
                                        reader != nullptr, reader == nullptr ? 0.0f : reader->scale});
    holds_int8_queries_[static_cast<size_t>(op.out)] = reader != nullptr;
  }

  // The attention op that reads the queries, if it wants them as int8 and nobody else wants them at all.
  const OctavoOp* int8_reader_of(const OctavoOp& writer) const {
    const OctavoOp* reader = spec_.only_reader_of(writer);
    const bool attends = reader != nullptr && static_cast<OpKind>(reader->kind) == OpKind::kPagedAttention;
    return attends && kv_->view().dtype == KvDtype::kInt8 ? reader : nullptr;
  }

  void add_paged_attention(const OctavoOp& op) {
    check_heads(op);
    check(op.window >= 0, "a window is negative");
    check(op.x != op.out, "attention cannot overwrite its queries");
    const int64_t columns = int64_t{op.num_heads} * op.head_dim;
    static_cast<void>(slot(op.out, columns));
    const RowTargets out = row_targets(op, op.head_dim);
    out_.ops.push_back(PagedAttentionOp{out.floats, out.quantized, slot(op.x, columns),
                                        holds_int8_queries_[static_cast<size_t>(op.x)], op.layer, op.num_heads,
                                        op.num_kv_heads, op.head_dim, op.scale, op.window, op.soft_cap});
  }

  GatedActivationOp gated_activation(const OctavoOp& op) {
    const int32_t columns = spec_.width(op.out);
    holds_int8_queries_[static_cast<size_t>(op.out)] = false;
    const RowTargets out = row_targets(op, columns);
    return {out.floats, out.quantized, slot(op.x, int64_t{columns} * 2), columns, static_cast<Activation>(op.activation)};
  }

  void add_experts(const OctavoOp& op) {
    const int32_t hidden = spec_.width(op.x);
    std::vector<Panels> panels;
    for (const int32_t index : spec_.parts_of(op)) panels.push_back(panels_.at(index));
    check(op.x != op.out, "experts cannot overwrite their input");
    ExpertsOp experts{slot(op.out, hidden), slot(op.x, hidden), nullptr, slot(op.router, op.num_experts), op.num_experts,
                      op.top_k, hidden, op.normalized != 0, static_cast<Activation>(op.activation)};
    if (spec_.has_parts(op, true)) experts.quantized = quantize(op.x);
    out_.ops.push_back(out_.experts.add(experts, panels, spec_->max_num_tokens));
  }

  void add_keep_logit_rows(const OctavoOp& op) {
    const int32_t columns = spec_.width(op.out);
    out_.ops.push_back(KeepLogitRowsOp{slot(op.out, columns), columns});
  }

  // Pointers into the logit rows' own buffers are filled in by Program, which makes those grow.
  void add_logits(const OctavoOp& op) {
    const int32_t depth = spec_.width(op.x);
    const std::vector<Panels>& parts = add_parts(op, depth);
    out_.head_depth = depth;
    out_.head_width = parts[0].num_columns;
    out_.head_is_integer = is_integer(parts[0].kind);
    if (out_.head_is_integer) {
      out_.head_ops.push_back(QuantizeRowsOp{nullptr, slot(op.x, depth), depth, RowSet::kLogitRows});
    } else {
      out_.head_ops.push_back(GatherRowsOp{nullptr, slot(op.x, depth), depth});
    }
    out_.head_ops.push_back(LinearOp{nullptr, out_.head_width, nullptr, nullptr, depth, parts.data(), 1, nullptr, false,
                                     RowSet::kLogitRows, nullptr});
    if (op.soft_cap > 0) out_.head_ops.push_back(SoftCapOp{nullptr, out_.head_width, op.soft_cap});
  }

  const ProgramSpec spec_;
  bool with_adapters_ = false;  // which of the two lists of ops is being made
  ThreadPool& pool_;
  const KvStore* kv_;
  CompiledProgram out_;
  std::unordered_map<int32_t, size_t> vector_offsets_;
  std::unordered_map<int32_t, Panels> panels_;
  std::vector<QuantizedGroup*> quantized_;  // by slot
  std::vector<bool> is_quantized_;          // by slot
  std::vector<bool> holds_int8_queries_;    // by slot
};

}  // namespace

CompiledProgram compile(const OctavoProgramSpec& spec, ThreadPool& pool, const KvStore* kv) {
  return Compiler(spec, pool, kv).compile();
}

}  // namespace octavo
