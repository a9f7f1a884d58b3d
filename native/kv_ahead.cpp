#include "kv_ahead.h"

#include <algorithm>

#include "step.h"

namespace octavo {

namespace {

constexpr int32_t kMaxRowsOfRequest = 8;           // more share the loads of K and V: computing takes longer
constexpr int32_t kRowsOfItem = 48;                // of a pass, about
constexpr int64_t kMostBytes = int64_t{16} << 20;  // of all workers: half of a third-level cache that cores share

}  // namespace

KvAhead::KvAhead(const PagedAttentionOp& op, const StepView& step, int32_t worker_index, int32_t num_workers)
    : step_(&step),
      layer_(step.kv.block(op.layer, 0)),
      blocks_left_(kMostBytes / num_workers / step.kv.block_bytes()),
      num_passes_(op.window > 0 ? 0 : step.shared.num_passes),
      group_(op.num_heads / op.num_kv_heads),
      window_(op.window),
      worker_index_(worker_index),
      num_workers_(num_workers) {
  if (step.kv.block_bytes() < kStep) return;
  int64_t count = 0;
  for (int32_t request = 0; request < step.num_requests; ++request) count += entries_of_request(request).size();
  skips_ = share_begin(count, worker_index, num_workers);
  share_left_ = share_size(count, worker_index, num_workers);
  find_block();
}

void KvAhead::find_block() {
  next_ = nullptr;
  if (blocks_left_ == 0 || !find_entry()) return;
  --blocks_left_;
  const int64_t bytes = step_->kv.block_bytes();
  next_ = layer_ + entries_.block_table[entries_.begin] * bytes;
  block_end_ = next_ + bytes / kStep * kStep;
  ++entries_.begin;
}

bool KvAhead::find_entry() {
  while (entries_.begin >= entries_.end) {
    if (num_found_ == num_passes_ + step_->num_requests) return false;
    entries_ = num_found_ < num_passes_ ? entries_of_pass(num_found_) : share_of(entries_of_request(num_found_ - num_passes_));
    ++num_found_;
  }
  return true;
}

KvAhead::Entries KvAhead::share_of(Entries entries) {
  const int64_t skipped = std::min(skips_, entries.size());
  const int64_t taken = std::min(share_left_, entries.size() - skipped);
  skips_ -= skipped;
  share_left_ -= taken;
  const auto begin = static_cast<int32_t>(entries.begin + skipped);
  return {entries.block_table, begin, static_cast<int32_t>(begin + taken)};
}

KvAhead::Entries KvAhead::entries_of_pass(int32_t pass) const {
  const SharedPass& shared = step_->shared.passes[pass];
  const int32_t* table = step_->block_table(step_->request_of_row[step_->shared.rows[shared.first_row]]);
  const int32_t block_size = step_->kv.block_size;
  const int32_t begin = shared.partition_begin * kPartitionTokens / block_size;
  const int32_t end = (shared.partition_end * kPartitionTokens + block_size - 1) / block_size;
  // With rows enough each worker attends for some of them to the whole pass, else for all to a part of it.
  if (shared.num_rows * group_ / kRowsOfItem >= num_workers_) return {table, begin, end};
  return {table, begin + static_cast<int32_t>(share_begin(end - begin, worker_index_, num_workers_)),
          begin + static_cast<int32_t>(share_begin(end - begin, worker_index_ + 1, num_workers_))};
}

KvAhead::Entries KvAhead::entries_of_request(int32_t request) const {
  const int32_t* rows = step_->query_start_loc + request;
  const int32_t num_rows = rows[1] - rows[0];
  if (num_rows == 0 || num_rows > kMaxRowsOfRequest) return {};
  const int32_t pass = num_passes_ == 0 ? -1 : step_->shared.of_request[request].deepest;
  const int32_t windowed = window_ == 0 ? 0 : std::max(step_->positions[rows[0]] - window_ + 1, 0);
  const int32_t first_token = pass < 0 ? windowed : step_->shared.passes[pass].partition_end * kPartitionTokens;
  const int32_t block_size = step_->kv.block_size;
  return {step_->block_table(request), first_token / block_size,
          (step_->seq_lens[request] + block_size - 1) / block_size};
}

}  // namespace octavo
