#include "disturbance.h"

#include <sys/resource.h>

namespace octavo {

int64_t preemptions_of_this_process() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace octavo
