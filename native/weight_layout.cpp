#include "weight_layout.h"

#include <unordered_set>
#include <utility>

namespace octavo {

namespace {

class Places {
 public:
  explicit Places(const ProgramSpec& spec) : spec_(spec) {}

  void add_parts(const OctavoOp& op) {
    const std::vector<int32_t> parts = spec_.parts_of(op);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!placed_.insert(parts[i]).second) continue;
      Panels panels = plan_panels(spec_.raw(parts[i]));  // once: of some formats it looks at all scales
      const int64_t offset = layout_.bytes;
      const bool in_turns = spec_.is_gate(op, i) && is_planned_alike(panels, parts[i + 1]);
      if (in_turns) panels.stride = 2 * panels.bundle_bytes;
      add(parts[i], panels, offset);
      if (!in_turns) continue;
      placed_.insert(parts[i + 1]);
      add(parts[i + 1], panels, offset + panels.bundle_bytes);
    }
  }

  WeightLayout take() { return std::move(layout_); }

 private:
  bool is_planned_alike(const Panels& gate, int32_t up) const {
    if (!is_integer(gate.kind) || placed_.contains(up)) return false;
    const Panels panels = plan_panels(spec_.raw(up));
    return panels.kind == gate.kind && panels.num_columns == gate.num_columns && panels.depth == gate.depth;
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
