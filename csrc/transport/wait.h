// Waiting, for the whole library: spin, then yield, then sleep until a peer rings.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace pycomm {

using Clock = std::chrono::steady_clock;

// An event count that lives in the owner's segment, so that peers on the node can ring it. Protocol: a peer publishes
// data, fences, and looks at `sleepers`; the owner announces itself in `sleepers`, fences, and looks at the data again.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> bell{0};            // the futex word
  std::atomic<std::uint32_t> sleepers{0};        // threads asleep or about to be, on the futex
  std::atomic<std::uint32_t> epoll_sleepers{0};  // likewise in epoll_wait: rung by the eventfd
};

// Limits of waiting; they come from the plan's profile, never from here.
struct WaitLimits {
  std::chrono::nanoseconds spin{0};       // with a core for each local rank; else 0
  std::chrono::nanoseconds yield{100'000};
  std::chrono::nanoseconds nap{20'000'000};  // the longest sleep between two looks at liveness and deadline
};

// One process's (or rank thread's) way of sleeping. Thread-safe.
class Waiter {
 public:
  Waiter(Doorbell& doorbell, int event_fd);
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  void set_limits(const WaitLimits& limits);
  // Sockets join the set of what ends a sleep. With none, sleep is on the futex.
  void add_descriptor(int fd);
  void remove_descriptor(int fd);
  void want_write(int fd, bool wanted);

  // One wait, from the last progress to the next.
  class Pause {
   public:
    explicit Pause(Waiter& waiter) : waiter_(waiter) {}
    ~Pause() { reset(); }
    // Call when a poll of everything found nothing; polls must happen between two calls. Spins or yields for a moment;
    // later announces the sleeper and returns, so that one more poll follows; then sleeps, at most `nap` or to `deadline`.
    // Returns true when the wait is long enough (at least about 100 us since progress, and after every sleep) that the
    // caller should look at liveness, faults and its deadline.
    bool idle(Clock::time_point deadline);
    // Progress was made.
    void reset();

   private:
    Waiter& waiter_;
    enum class Stage : std::uint8_t { kFresh, kSpin, kYield, kAnnounced } stage_ = Stage::kFresh;
    bool announced_ = false;
    bool in_epoll_ = false;
    std::uint32_t seen_ = 0;
    Clock::time_point since_{};
  };

 private:
  friend class Pause;
  struct State;
  State* state_;
};

// Wakes the owner of a doorbell if it sleeps. Call after publishing; costs one fence and one load when nobody sleeps.
void ring(Doorbell& doorbell, int event_fd);

}  // namespace pycomm
