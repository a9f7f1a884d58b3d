// attention_items: reads the shape of an attention op, how many workers there are, and of each request its rows, the tokens before
// them, and whether a shared pass over one partition is its first; prints the items of its row blocks, one per line: request, first
// row, rows, and the ranges of K/V heads and partitions.
#define OCTAVO_SIMD_GENERIC
#define OCTAVO_ISA generic
#include <iostream>
#include <vector>

#include "../attention_plan.inc.h"

int main() {
  using namespace octavo;
  PagedAttentionOp op{};
  int32_t num_workers = 0, num_requests = 0;
  std::cin >> op.num_heads >> op.num_kv_heads >> op.head_dim >> op.window >> num_workers >> num_requests;
  std::vector<int32_t> loc{0}, positions;
  std::vector<RequestPasses> of_request;
  for (int32_t request = 0; request < num_requests; ++request) {
    int32_t rows = 0, before = 0, shares = 0;
    std::cin >> rows >> before >> shares;
    for (int32_t row = 0; row < rows; ++row) positions.push_back(before + row);
    loc.push_back(loc.back() + rows);
    of_request.push_back({shares != 0 ? 0 : -1, 0});
  }
  const SharedPass pass{0, 1, 0, 1, -1, 0};
  StepView step{};
  step.num_tokens = loc.back();
  step.num_requests = num_requests;
  step.query_start_loc = loc.data();
  step.positions = positions.data();
  step.shared = {&pass, 1, nullptr, of_request.data(), 1};
  generic::RowBlockWalk walk(op, step, num_workers);
  for (int64_t i = 0; i < walk.num_items(); ++i) {
    const generic::AttentionItem item = walk.find_item(i);
    std::cout << item.block.request << ' ' << item.block.first_row << ' ' << item.block.num_rows << ' ' << item.kv_head_begin << ' '
              << item.kv_head_end << ' ' << item.partition_begin << ' ' << item.partition_end << '\n';
  }
}
