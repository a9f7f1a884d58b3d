#include "shared_prefix.h"

#include <algorithm>

namespace octavo {

namespace {

constexpr int32_t kMaxRowsOfMember = 8;

int32_t common_blocks(const int32_t* a, const int32_t* b, int32_t most) {
  return static_cast<int32_t>(std::mismatch(a, a + most, b).first - a);
}

}  // namespace

SharedPassView SharedPrefixes::find(const StepView& step) {
  members_.clear();
  passes_.clear();
  num_units_ = 0;
  collect_members(step);
  if (members_.size() < 2) return {};
  std::sort(members_.begin(), members_.end(), [](const Member& a, const Member& b) {
    return std::lexicographical_compare(a.block_table, a.block_table + a.num_blocks, b.block_table,
                                        b.block_table + b.num_blocks);
  });
  lay_out_rows(step);
  of_request_.assign(static_cast<size_t>(step.num_requests), {-1, 0});
  find_passes(step.kv.block_size);
  if (passes_.empty()) return {};
  return {passes_.data(), static_cast<int32_t>(passes_.size()), rows_.data(), of_request_.data(), num_units_};
}

void SharedPrefixes::collect_members(const StepView& step) {
  for (int32_t request = 0; request < step.num_requests; ++request) {
    const int32_t first = step.query_start_loc[request], count = step.query_start_loc[request + 1] - first;
    if (count == 0 || count > kMaxRowsOfMember) continue;
    // The last partition stays the request's own, so that each has work outside the passes.
    const int32_t partitions = step.positions[first] / kPartitionTokens;
    if (partitions == 0) continue;
    const int32_t blocks = (partitions * kPartitionTokens - 1) / step.kv.block_size + 1;
    members_.push_back({request, partitions, step.block_table(request), blocks, -1});
  }
}

void SharedPrefixes::lay_out_rows(const StepView& step) {
  rows_.clear();
  first_rows_.assign(1, 0);
  for (const Member& member : members_) {
    const int32_t end = step.query_start_loc[member.request + 1];
    for (int32_t row = step.query_start_loc[member.request]; row < end; ++row) rows_.push_back(row);
    first_rows_.push_back(static_cast<int32_t>(rows_.size()));
  }
}

// Neighbours in lexicographic order have the most in common, and the members of a group are neighbours: a run is
// open as long as the next member has its partitions, too.
void SharedPrefixes::find_passes(int32_t block_size) {
  const int32_t count = static_cast<int32_t>(members_.size());
  open_.assign(1, {0, 0});
  for (int32_t next = 1; next <= count; ++next) {
    int32_t depth = 0, first = next - 1;
    if (next < count) {
      const Member& a = members_[static_cast<size_t>(next - 1)];
      const Member& b = members_[static_cast<size_t>(next)];
      const int32_t blocks = common_blocks(a.block_table, b.block_table, std::min(a.num_blocks, b.num_blocks));
      const int64_t partitions = int64_t{blocks} * block_size / kPartitionTokens;
      depth = static_cast<int32_t>(std::min<int64_t>(partitions, std::min(a.num_partitions, b.num_partitions)));
    }
    while (open_.back().depth > depth) {
      const OpenRun run = open_.back();
      open_.pop_back();
      close_run(run, next, std::max(depth, open_.back().depth));
      first = run.first_member;
    }
    if (open_.back().depth < depth) open_.push_back({first, depth});
  }
}

void SharedPrefixes::close_run(const OpenRun& run, int32_t end_member, int32_t partition_begin) {
  const int32_t index = static_cast<int32_t>(passes_.size());
  const int32_t first_row = first_rows_[static_cast<size_t>(run.first_member)];
  const int32_t num_rows = first_rows_[static_cast<size_t>(end_member)] - first_row;
  passes_.push_back({first_row, num_rows, partition_begin, run.depth, -1, num_units_});
  num_units_ += int64_t{num_rows} * (run.depth - partition_begin);
  for (int32_t i = run.first_member; i < end_member; ++i) {
    Member& member = members_[static_cast<size_t>(i)];
    if (member.latest_pass < 0) {
      of_request_[static_cast<size_t>(member.request)] = {index, first_rows_[static_cast<size_t>(i)]};
    } else {
      passes_[static_cast<size_t>(member.latest_pass)].parent = index;
    }
    member.latest_pass = index;
  }
}

}  // namespace octavo
