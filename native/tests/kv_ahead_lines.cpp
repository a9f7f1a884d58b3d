// kv_ahead_lines: reads a step from standard input, as tests/unit/kernels/test_native_kv_ahead.py writes it, and prints
// what each worker's KvAhead asks for, in steps from the beginning of the pool, one line per worker.
#include <cstdio>
#include <iostream>
#include <vector>

#include "../step.h"

namespace {

std::vector<int32_t> read_numbers() {
  int32_t count = 0;
  std::cin >> count;
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  for (int32_t& number : numbers) std::cin >> number;
  return numbers;
}

}  // namespace

int main() {
  using namespace octavo;
  const std::vector<int32_t> shape = read_numbers(), loc = read_numbers(), seq_lens = read_numbers(), tables = read_numbers(),
                             passes = read_numbers(), rows = read_numbers(), deepest = read_numbers();
  const int32_t layer = shape[0], window = shape[1], num_workers = shape[2], num_blocks = shape[3], block_size = shape[4];
  StepView step{};
  std::vector<std::byte> pool(1);  // its address alone counts
  step.kv = {pool.data(), KvDtype::kInt8, layer + 1, num_blocks, shape[5], shape[6], block_size, 16};
  step.num_requests = static_cast<int32_t>(seq_lens.size());
  step.num_tokens = loc.back();
  step.max_blocks_per_request = static_cast<int32_t>(tables.size()) / step.num_requests;
  std::vector<int32_t> positions, request_of_row;
  for (int32_t request = 0; request < step.num_requests; ++request) {
    const int32_t begin = loc[static_cast<size_t>(request)], end = loc[static_cast<size_t>(request) + 1];
    for (int32_t row = begin; row < end; ++row) {
      positions.push_back(seq_lens[static_cast<size_t>(request)] - end + row);
      request_of_row.push_back(request);
    }
  }
  step.query_start_loc = loc.data();
  step.seq_lens = seq_lens.data();
  step.block_tables = tables.data();
  step.positions = positions.data();
  step.request_of_row = request_of_row.data();
  std::vector<SharedPass> shared;
  for (size_t i = 0; i < passes.size(); i += 4) shared.push_back({passes[i], passes[i + 1], passes[i + 2], passes[i + 3], -1, 0});
  std::vector<RequestPasses> of_request;
  for (const int32_t pass : deepest) of_request.push_back({pass, 0});
  step.shared = {shared.data(), static_cast<int32_t>(shared.size()), rows.data(), of_request.data(), 0};
  PagedAttentionOp op{};
  op.layer = layer;
  op.num_kv_heads = shape[5];
  op.num_heads = 3 * op.num_kv_heads;
  op.window = window;
  for (int32_t worker = 0; worker < num_workers; ++worker) {
    KvAhead ahead(op, step, worker, num_workers);
    for (; ahead.next() != nullptr; ahead.fetch()) std::cout << ahead.next() - pool.data() << ' ';
    std::cout << '\n';
  }
}
