// An OctavoProgramSpec, looked into: what its numbers refer to, checked, and which ops read what an op writes.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo_native.h"
#include "packing.h"

namespace octavo {

// Who reads what an op leaves in its slot.
struct Readers {
  bool integer_linears = false;
  bool others = false;  // of the float32 rows
  int32_t count = 0;
};

class ProgramSpec {
 public:
  explicit ProgramSpec(const OctavoProgramSpec& spec) : spec_(spec) {}

  const OctavoProgramSpec* operator->() const { return &spec_; }

  void check_weights() const;
  const OctavoWeight& weight(int32_t index) const;
  RawWeight raw(int32_t index) const;
  int32_t width(int32_t slot) const;
  // Weights that linear multiplies by; a program's head is one part.
  std::vector<int32_t> parts_of(const OctavoOp& op) const;
  // Whether some part is kept as integers, or as floats.
  bool has_parts(const OctavoOp& op, bool integer) const;
  // A linear whose output only the next op reads, to gate one half with the other.
  bool is_gated(const OctavoOp& op) const;
  // Whether that part of an op gates the next one.
  bool is_gate(const OctavoOp& op, size_t part) const;
  // Up to the next op that writes the slot. Rows that no op reads are a result: somebody outside reads them.
  Readers readers_of(const OctavoOp& writer) const;
  // The op that reads them if it is the only one; ops that only drop rows do not count. Else null.
  const OctavoOp* only_reader_of(const OctavoOp& writer) const;

 private:
  const OctavoProgramSpec& spec_;
};

}  // namespace octavo
