// How fast a link is, learnt from its acknowledgements.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace pycomm::tcp {

using Clock = std::chrono::steady_clock;

// A mean over the last dozen acknowledgements, weighted by their bytes.
class Pace {
 public:
  // Large frames of `bytes` in all were acknowledged at `now`; the first of them was sent at `sent`.
  void acknowledged(std::size_t bytes, Clock::time_point sent, Clock::time_point now) {
    const std::chrono::duration<double> taken = now - std::max(sent, last_);
    bytes_ = bytes_ * kKept + static_cast<double>(bytes);
    seconds_ = seconds_ * kKept + taken.count();
    last_ = now;
  }
  // Bytes per second; 0 when not known, or not for a while: conditions change.
  double rate(Clock::time_point now) const {
    return seconds_ > 0 && now - last_ < kFresh ? bytes_ / seconds_ : 0;
  }

 private:
  static constexpr double kKept = 0.875;
  static constexpr std::chrono::seconds kFresh{1};

  double bytes_ = 0, seconds_ = 0;
  Clock::time_point last_{};
};

}  // namespace pycomm::tcp
