// disturbance_notes: reads pairs of preemptions and times [ms] from standard input, and prints for each whether it was due, and
// whether a disturbance goes on.
#include <iostream>

#include "../disturbance.h"

int main() {
  octavo::Disturbance disturbance;
  for (int64_t preemptions, milliseconds; std::cin >> preemptions >> milliseconds;) {
    const int64_t now = milliseconds * 1'000'000;
    const bool is_due = disturbance.is_due(now);
    if (is_due) disturbance.note(preemptions, now);
    std::cout << is_due << ' ' << disturbance.goes_on() << '\n';
  }
}
