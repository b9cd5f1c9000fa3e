// How fast a link is, learnt from its acknowledgements.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace pycomm::tcp {

using Clock = std::chrono::steady_clock;

// As BBR measures delivery (Cardwell et al., ACM Queue 14(5), 2016): what was delivered between a frame's
// start and its acknowledgement, over that time. Of a link that was idle at the start this says only that it
// is at least so fast.
class Pace {
 public:
  struct Start {
    Clock::time_point at{};
    std::uint64_t delivered = 0;
    bool idle = true;  // nothing else was under way
  };
  Start start(bool idle) const { return {Clock::now(), delivered_, idle}; }

  // So many bytes were acknowledged, up to those of the frame that started so.
  void delivered(std::size_t bytes, const Start& start) {
    delivered_ += bytes;
    const auto now = Clock::now();
    const std::chrono::duration<double> time = now - start.at;
    const double rate = static_cast<double>(delivered_ - start.delivered) / std::max(time.count(), 1e-9);
    const double known = this->rate(now);
    if (start.idle && (known == 0 || rate < known)) return;
    rate_ = rate > known ? rate : known + (rate - known) / kPatience;
    known_at_ = now;
  }
  // Bytes per second; 0 when not known, or not for a while: conditions change.
  double rate(Clock::time_point now) const { return now - known_at_ < kFresh ? rate_ : 0; }

 private:
  static constexpr double kPatience = 8;  // samples that it takes to believe that a link has become slower
  static constexpr std::chrono::seconds kFresh{1};

  std::uint64_t delivered_ = 0;
  double rate_ = 0;
  Clock::time_point known_at_{};
};

}  // namespace pycomm::tcp
