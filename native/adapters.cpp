#include "adapters.h"

#include <algorithm>
#include <string>
#include <utility>

#include "error.h"

namespace octavo {

namespace {

constexpr int32_t kMaxAdapters = 1 << 16;

int32_t panels_of(int32_t count) { return (count + kRankLanes - 1) / kRankLanes; }

void check_pair(const OctavoLowRank& pair, const std::vector<AdaptableLinear>& linears) {
  check(pair.linear >= 0 && static_cast<size_t>(pair.linear) < linears.size(), "an adapter names a linear that is not there");
  const size_t num_parts = linears[static_cast<size_t>(pair.linear)].part_columns.size();
  check(pair.part >= 0 && static_cast<size_t>(pair.part) < num_parts, "an adapter names a part that is not there");
  if (pair.rank < 1 || pair.rank > kMaxRank) {
    throw Error("an adapter's rank is " + std::to_string(pair.rank) + ", it must be 1 … " + std::to_string(kMaxRank));
  }
}

// [rows][columns] to panels of 16 rows: [rows / 16][columns][16].
float* pack(const float* matrix, int32_t rows, int32_t columns, float* panels) {
  for (int32_t row = 0; row < rows; ++row) {
    float* panel = panels + int64_t{row / kRankLanes} * columns * kRankLanes + row % kRankLanes;
    for (int32_t k = 0; k < columns; ++k) panel[int64_t{k} * kRankLanes] = matrix[int64_t{row} * columns + k];
  }
  return panels + int64_t{panels_of(rows)} * columns * kRankLanes;
}

}  // namespace

Adapter::Adapter(const OctavoLowRank* pairs, int32_t num_pairs, const std::vector<AdaptableLinear>& linears) {
  check(num_pairs >= 0, "an adapter has a negative number of pairs");
  std::vector<OctavoLowRank> sorted(pairs, pairs + num_pairs);
  const auto place = [](const OctavoLowRank& pair) { return std::pair(pair.linear, pair.part); };
  std::sort(sorted.begin(), sorted.end(), [&](const auto& x, const auto& y) { return place(x) < place(y); });
  size_t num_floats = 0;
  for (const OctavoLowRank& pair : sorted) {
    check_pair(pair, linears);
    check(&pair == sorted.data() || place(*(&pair - 1)) < place(pair), "an adapter has two pairs for one part");
    const AdaptableLinear& linear = linears[static_cast<size_t>(pair.linear)];
    const size_t columns = static_cast<size_t>(linear.part_columns[static_cast<size_t>(pair.part)]);
    num_floats += round_up(static_cast<size_t>(pair.rank), kRankLanes) * static_cast<size_t>(linear.depth);
    num_floats += round_up(columns, kRankLanes) * static_cast<size_t>(pair.rank);
  }
  memory_ = HugeMemory(num_floats * sizeof(float));
  float* free = reinterpret_cast<float*>(memory_.data());
  auto next = sorted.begin();
  for (size_t i = 0; i < linears.size(); ++i) {
    first_pair_.push_back(static_cast<int32_t>(pairs_.size()));
    int32_t width = 0;
    for (; next != sorted.end() && next->linear == static_cast<int32_t>(i); ++next) {
      const auto part = linears[i].part_columns.begin() + next->part;
      int32_t first_column = 0;
      for (auto before = linears[i].part_columns.begin(); before != part; ++before) first_column += *before;
      float* const a = free;
      float* const b = pack(next->a, next->rank, linears[i].depth, a);
      free = pack(next->b, *part, next->rank, b);
      pairs_.push_back({a, b, next->rank, width, first_column, *part, next->scale});
      width += panels_of(next->rank) * kRankLanes;
    }
    products_width_ = std::max(products_width_, width);
  }
  first_pair_.push_back(static_cast<int32_t>(pairs_.size()));
}

void AdapterTable::set(int32_t slot, std::unique_ptr<Adapter> adapter) {
  check(slot >= 0 && slot < kMaxAdapters, "an adapter's place is out of range");
  if (static_cast<size_t>(slot) >= adapters_.size()) adapters_.resize(static_cast<size_t>(slot) + 1);
  adapters_[static_cast<size_t>(slot)] = std::move(adapter);
}

AdapterStepView AdapterTable::group(const StepView& step, const int32_t* slots, AdapterRows& memory) const {
  memory.groups.clear();
  memory.rows.clear();
  if (slots == nullptr) return {};
  for (int32_t i = 0; i < step.num_requests; ++i) {
    const bool is_set = slots[i] >= 0 && static_cast<size_t>(slots[i]) < adapters_.size() &&
                        adapters_[static_cast<size_t>(slots[i])] != nullptr;
    if (slots[i] != -1 && !is_set) throw Error("a request has adapter " + std::to_string(slots[i]) + ", which is not loaded");
  }
  int32_t width = 0;
  for (size_t slot = 0; slot < adapters_.size(); ++slot) {
    const int32_t first_row = static_cast<int32_t>(memory.rows.size());
    for (int32_t i = 0; i < step.num_requests; ++i) {
      if (slots[i] != static_cast<int32_t>(slot)) continue;
      for (int32_t row = step.query_start_loc[i]; row < step.query_start_loc[i + 1]; ++row) memory.rows.push_back(row);
    }
    const int32_t num_rows = static_cast<int32_t>(memory.rows.size()) - first_row;
    if (num_rows == 0) continue;
    memory.groups.push_back({adapters_[slot]->view(), first_row, num_rows});
    width = std::max(width, adapters_[slot]->products_width());
  }
  const size_t bytes = memory.rows.size() * static_cast<size_t>(width) * sizeof(float);
  if (bytes > memory.products.size()) memory.products = HugeMemory(bytes);
  return {memory.groups.data(), static_cast<int32_t>(memory.groups.size()), memory.rows.data(),
          reinterpret_cast<float*>(memory.products.data()), width};
}

int64_t AdapterTable::num_bytes() const {
  int64_t total = 0;
  for (const auto& adapter : adapters_) total += adapter == nullptr ? 0 : adapter->num_bytes();
  return total;
}

}  // namespace octavo
