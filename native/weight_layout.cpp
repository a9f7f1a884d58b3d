#include "weight_layout.h"

#include <unordered_set>

namespace octavo {

namespace {

class Places {
 public:
  explicit Places(const ProgramSpec& spec) : spec_(spec) {}

  void add_parts(const OctavoOp& op) {
    const std::vector<int32_t> parts = spec_.parts_of(op);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!placed_.insert(parts[i]).second) continue;
      if (spec_.is_gate(op, i) && lie_in_turns(parts[i], parts[i + 1])) {
        placed_.insert(parts[i + 1]);
        add_in_turns(parts[i], parts[i + 1]);
      } else {
        add(parts[i], plan_panels(spec_.raw(parts[i])), layout_.bytes);
      }
    }
  }

  WeightLayout take() { return std::move(layout_); }

 private:
  bool lie_in_turns(int32_t gate, int32_t up) const {
    if (placed_.contains(up)) return false;
    const Panels a = plan_panels(spec_.raw(gate)), b = plan_panels(spec_.raw(up));
    return is_integer(a.kind) && a.kind == b.kind && a.num_columns == b.num_columns && a.depth == b.depth;
  }

  void add_in_turns(int32_t gate, int32_t up) {
    const int64_t begin = layout_.bytes;
    Panels panels = plan_panels(spec_.raw(gate));
    panels.stride = 2 * panels.bundle_bytes;
    add(gate, panels, begin);
    add(up, panels, begin + panels.bundle_bytes);
  }

  void add(int32_t index, const Panels& panels, int64_t offset) {
    layout_.weights.push_back({index, offset, panels});
    layout_.bytes += panel_bytes(panels);
  }

  const ProgramSpec& spec_;
  WeightLayout layout_;
  std::unordered_set<int32_t> placed_;
};

}  // namespace

WeightLayout lay_out_weights(const ProgramSpec& spec) {
  Places places(spec);
  for (int32_t i = 0; i < spec->num_ops; ++i) places.add_parts(spec->ops[i]);
  return places.take();
}

}  // namespace octavo
