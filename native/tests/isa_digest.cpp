// isa_digest ISA: runs every kernel of one instruction set on inputs that are the same on every machine and prints a
// digest per case, for comparison with another instruction set's (ADR 0001: the lanes are virtual, so the bits agree).
#include <cstdio>
#include <exception>

#include "../isa.h"
#include "digest_cases.h"

int main(int num_arguments, char** arguments) {
  if (num_arguments != 2) {
    std::fprintf(stderr, "usage: isa_digest ISA, one of: %s\n", octavo::available_isas().c_str());
    return 2;
  }
  try {
    octavo::digest::Machine machine(octavo::kernel_table(arguments[1]));
    octavo::digest::run_linear_cases(machine);
    octavo::digest::run_row_cases(machine);
    octavo::digest::run_cache_cases(machine);
    octavo::digest::run_sampling_cases(machine);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "isa_digest: %s\n", error.what());
    return 1;
  }
  return 0;
}
