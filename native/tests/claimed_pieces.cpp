// claimed_pieces: reads how many workers there are, how many pieces each of them owns, and how many phases to run; prints how
// often each piece was handed out, owner by owner, as one line, and in another how often a worker got another's piece while it
// had some of its own.
#include <sched.h>

#include <atomic>
#include <iostream>
#include <vector>

#include "../thread_pool.h"

int main() {
  using namespace octavo;
  int32_t num_workers = 0, num_phases = 0;
  std::cin >> num_workers >> num_phases;
  std::vector<int64_t> sizes(static_cast<size_t>(num_workers)), begins;
  int64_t total = 0;
  for (int64_t& size : sizes) {
    std::cin >> size;
    begins.push_back(total);
    total += size;
  }
  std::vector<std::atomic<int32_t>> counts(static_cast<size_t>(total));
  std::atomic<int64_t> num_too_early{0};
  ThreadPool pool(num_workers);
  pool.run([&](Worker& worker) {
    for (int32_t phase = 0; phase < num_phases; ++phase) {
      ClaimedPiece piece;
      while (claim_shared_out(worker, [&](int32_t owner) { return sizes[static_cast<size_t>(owner)]; }, piece)) {
        counts[static_cast<size_t>(begins[static_cast<size_t>(piece.owner)] + piece.number)] += 1;
        const int64_t own = sizes[static_cast<size_t>(worker.index)];
        if (piece.owner != worker.index && claim_of(worker, worker.index, own) < own) num_too_early += 1;
        if (worker.index == phase % worker.count) sched_yield();  // others help
      }
      barrier(worker);
    }
  });
  for (const std::atomic<int32_t>& count : counts) std::cout << count.load() << ' ';
  std::cout << '\n' << num_too_early.load() << '\n';
}
