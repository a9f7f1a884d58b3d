// Which requests of a step begin with the same blocks, so that attention can read those once for all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "step.h"

namespace octavo {

// Found from the block tables, in units of whole partitions, any number of groups, nested or not. Only requests whose
// few rows leave a load of K and V half used take part: many rows of one request share their loads as it is.
class SharedPrefixes {
 public:
  // Forgets what it found before. The view is valid until the next call and while the step's arrays are.
  SharedPassView find(const StepView& step);

 private:
  struct Member {
    int32_t request;
    int32_t num_partitions;     // that all its rows see whole, and that are not its last
    const int32_t* block_table;
    int32_t num_blocks;         // that hold those partitions
    int32_t latest_pass;        // the shallowest one found so far; -1 before the first
  };
  // A run of members, from this one on, that have `depth` partitions in common.
  struct OpenRun {
    int32_t first_member;
    int32_t depth;
  };

  void collect_members(const StepView& step);
  void lay_out_rows(const StepView& step);
  void find_passes(int32_t block_size);
  void close_run(const OpenRun& run, int32_t end_member, int32_t partition_begin);

  std::vector<Member> members_;
  std::vector<OpenRun> open_;
  std::vector<SharedPass> passes_;
  std::vector<int32_t> rows_;             // rows of the step, member by member
  std::vector<int32_t> first_rows_;       // [members + 1], into rows_
  std::vector<RequestPasses> of_request_;
  int64_t num_units_ = 0;
};

}  // namespace octavo
