// The kernel tables that were compiled in, and which of them this processor can run.
#pragma once

#include <string>

#include "kernel_table.h"

namespace octavo {

// Comma-separated names, the best first.
const std::string& compiled_isas();
const std::string& available_isas();

// Throws if it was not compiled or cannot run here.
const KernelTable& kernel_table(const std::string& name);

}  // namespace octavo
