// Whether other processes keep the processors busy that this one runs on.
#pragma once

#include <cstdint>

namespace octavo {

// How often the operating system has taken the processor from a thread of this process, for somebody else.
int64_t preemptions_of_this_process();

// The rate of preemptions, looked at ten times a second.
class Disturbance {
 public:
  bool is_due(int64_t now) const { return now - window_begin_ >= kWindow; }

  // `preemptions` since the start of the process, at a time in nanoseconds.
  void note(int64_t preemptions, int64_t now) {
    goes_on_ = (preemptions - preemptions_before_) * 1'000'000'000 > kMostPerSecond * (now - window_begin_);
    window_begin_ = now;
    preemptions_before_ = preemptions;
  }

  // As it was when it was noted last.
  bool goes_on() const { return goes_on_; }

 private:
  static constexpr int64_t kWindow = 100'000'000;
  static constexpr int64_t kMostPerSecond = 150;  // 30 to 50 where it is quiet, 350 and more beside one busy process

  int64_t window_begin_ = 0;
  int64_t preemptions_before_ = 0;
  bool goes_on_ = false;
};

}  // namespace octavo
