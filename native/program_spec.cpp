#include "program_spec.h"

#include <algorithm>
#include <string>

#include "error.h"
#include "program.h"

namespace octavo {

namespace {

bool writes(const OctavoOp& op, int32_t slot) {
  return static_cast<OpKind>(op.kind) != OpKind::kLogits && op.out == slot;
}

bool reads(const OctavoOp& op, int32_t slot) {
  const OpKind kind = static_cast<OpKind>(op.kind);
  if (kind == OpKind::kInput || kind == OpKind::kEmbed) return false;
  const bool routes = kind == OpKind::kMixtureOfExperts && op.router == slot;
  return op.x == slot || routes || (op.accumulate != 0 && writes(op, slot));
}

}  // namespace

const OctavoWeight& ProgramSpec::weight(int32_t index) const {
  check(index >= 0 && index < spec_.num_weights, "an op names a weight that is not there");
  return spec_.weights[index];
}

RawWeight ProgramSpec::raw(int32_t index) const {
  const OctavoWeight& w = weight(index);
  return {static_cast<Quantization>(w.quantization), w.rows, w.columns, static_cast<const std::byte*>(w.bytes)};
}

int32_t ProgramSpec::width(int32_t slot) const {
  check(slot >= 0 && slot < spec_.num_slots, "an op names a buffer that is not there");
  return spec_.slot_widths[slot];
}

std::vector<int32_t> ProgramSpec::parts_of(const OctavoOp& op) const {
  if (static_cast<OpKind>(op.kind) == OpKind::kLogits) return {op.weight};
  if (static_cast<OpKind>(op.kind) != OpKind::kLinear && static_cast<OpKind>(op.kind) != OpKind::kMixtureOfExperts) {
    return {};
  }
  check(op.num_parts > 0 && op.first_part >= 0 && op.first_part <= spec_.num_parts - op.num_parts,
        "a linear's parts are not there");
  return {spec_.parts + op.first_part, spec_.parts + op.first_part + op.num_parts};
}

void ProgramSpec::check_weights() const {
  for (int32_t i = 0; i < spec_.num_weights; ++i) {
    const OctavoWeight& w = spec_.weights[i];
    check(w.rows > 0 && w.columns > 0 && w.rows <= INT32_MAX && w.columns <= INT32_MAX, "a weight has an impossible shape");
    const int64_t expected = row_bytes(static_cast<Quantization>(w.quantization), w.columns) * w.rows;
    if (w.num_bytes != expected) {
      throw Error("weight " + std::to_string(i) + " has " + std::to_string(w.num_bytes) + " bytes, its shape needs " +
                  std::to_string(expected));
    }
  }
}

bool ProgramSpec::has_parts(const OctavoOp& op, bool integer) const {
  const std::vector<int32_t> parts = parts_of(op);
  return std::any_of(parts.begin(), parts.end(), [&](int32_t i) { return is_integer(plan_panels(raw(i)).kind) == integer; });
}

bool ProgramSpec::is_gated(const OctavoOp& op) const {
  const OctavoOp* next = &op + 1;
  if (next == spec_.ops + spec_.num_ops || static_cast<OpKind>(next->kind) != OpKind::kGatedActivation) return false;
  const std::vector<int32_t> parts = parts_of(op);
  return next->x == op.out && next->out != op.x && op.accumulate == 0 && readers_of(op).count == 1 &&
         parts.size() == 2 && raw(parts[0]).rows == raw(parts[1]).rows;
}

bool ProgramSpec::is_gate(const OctavoOp& op, size_t part) const {
  switch (static_cast<OpKind>(op.kind)) {
    case OpKind::kLinear: return part == 0 && is_gated(op);
    case OpKind::kMixtureOfExperts: return part % 3 == 0 && part + 1 < static_cast<size_t>(op.num_parts);  // of gate, up, down
    default: return false;
  }
}

Readers ProgramSpec::readers_of(const OctavoOp& writer) const {
  Readers readers;
  for (const OctavoOp* op = &writer + 1; op != spec_.ops + spec_.num_ops; ++op) {
    const OpKind kind = static_cast<OpKind>(op->kind);
    if (reads(*op, writer.out)) {
      const bool is_input = op->x == writer.out;
      ++readers.count;
      readers.integer_linears |= is_input && kind != OpKind::kLogits && has_parts(*op, true);
      readers.others |= !is_input || kind != OpKind::kLinear || has_parts(*op, false);
    }
    if (writes(*op, writer.out)) break;
  }
  readers.others |= readers.count == 0;
  return readers;
}

const OctavoOp* ProgramSpec::only_reader_of(const OctavoOp& writer) const {
  const OctavoOp* reader = nullptr;
  for (const OctavoOp* op = &writer + 1; op != spec_.ops + spec_.num_ops; ++op) {
    if (static_cast<OpKind>(op->kind) == OpKind::kKeepLogitRows) continue;
    if (reads(*op, writer.out)) {
      if (reader != nullptr) return nullptr;
      reader = op;
    }
    if (writes(*op, writer.out)) break;
  }
  return reader;
}

}  // namespace octavo
