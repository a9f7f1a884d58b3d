// Errors inside the library; the C ABI turns them into a code and octavo_last_error().
#pragma once

#include <stdexcept>
#include <string>

namespace octavo {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A weight has a value that no model can have.
class WeightError : public Error {
 public:
  using Error::Error;
};

inline void check(bool holds, const char* message) {
  if (!holds) throw Error(message);
}

}  // namespace octavo
