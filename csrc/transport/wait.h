// Waiting, for the whole library: spin, then yield, then sleep until a peer rings.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>

#include "transport/descriptor.h"

namespace pycomm {

using Clock = std::chrono::steady_clock;

// An event count that lives in the owner's segment, so that peers on the node can ring it. Protocol: a peer
// publishes data, fences, and looks whether anyone is asleep; the owner says that it is, fences, and looks at
// the data again. So either the owner sees the data or the peer sees the sleeper. A ring takes the word back,
// so that a peer which publishes much while the owner wakes up makes one system call and not many.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> bell{0};             // rings so far; the futex word
  std::atomic<std::uint32_t> asleep{0};           // 1: a thread sleeps on the futex, or is about to
  std::atomic<std::uint32_t> asleep_in_epoll{0};  // 1: likewise in epoll_wait, where the eventfd wakes it
};

// Limits of waiting; they come from the plan's profile, never from here.
struct WaitLimits {
  std::chrono::nanoseconds spin{0};  // with a core for each local rank; else 0
  std::chrono::nanoseconds yield{100'000};
  std::chrono::nanoseconds nap{20'000'000};  // the longest sleep between two looks at liveness and deadline
};

// One process's (or rank thread's) way of sleeping. Thread-safe; several threads may sleep at once, and a
// ring wakes them all. Descriptors are not owned. After a fork only the parent may use it.
class Waiter {
 public:
  // `event_fd` is the non-blocking eventfd that peers write when they ring. Both must outlive the waiter.
  Waiter(Doorbell& doorbell, int event_fd) : doorbell_(doorbell), event_fd_(event_fd) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  void set_limits(const WaitLimits& limits);
  // Whether waits spin: only where there is a core for each local rank.
  bool spins() const { return spin_.load(std::memory_order_relaxed) > 0; }
  // Sockets join the set of what ends a sleep. With none, sleep is on the futex. Throws std::system_error.
  void add_descriptor(int fd);
  void remove_descriptor(int fd);
  // Room to write ends a sleep too, or no longer. Only for descriptors that were added.
  void want_write(int fd, bool wanted);

  // One wait, from the last progress to the next. For one thread.
  class Pause {
   public:
    explicit Pause(Waiter& waiter) : waiter_(waiter) {}
    ~Pause() { reset(); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

    // Call when a poll of everything found nothing; polls must happen between two calls. Spins or yields for
    // a moment; later announces the sleeper and returns, so that one more poll follows; then sleeps, at most
    // `nap` or to `deadline`. Returns true when the caller should look at liveness, faults and its deadline:
    // about every 100 us, and after every sleep.
    bool idle(Clock::time_point deadline);
    // Progress was made.
    void reset() {
      if (announced_) retire();
      stage_ = Stage::kFresh;
    }

   private:
    enum class Stage : std::uint8_t { kFresh, kSpin, kYield, kAnnounced };

    bool start();
    bool spin();
    bool yield();
    bool sleep(Clock::time_point deadline);
    void announce();
    void retire();
    bool due(Clock::time_point now);

    Waiter& waiter_;
    Stage stage_ = Stage::kFresh;
    bool announced_ = false;
    bool slept_ = false;  // since announced
    bool in_epoll_ = false;
    std::uint32_t seen_ = 0;  // bell, before announced
    std::uint32_t spins_ = 0;
    Clock::time_point since_{};   // start of the wait
    Clock::time_point looked_{};  // when idle last returned true
  };

 private:
  friend class Pause;
  using Nanoseconds = std::atomic<std::chrono::nanoseconds::rep>;

  std::atomic<std::uint32_t>& asleep(bool in_epoll) {
    return in_epoll ? doorbell_.asleep_in_epoll : doorbell_.asleep;
  }
  void sleep_on_futex(std::uint32_t seen, std::chrono::nanoseconds longest);
  void sleep_in_epoll(std::chrono::nanoseconds longest);

  Doorbell& doorbell_;
  int event_fd_;
  Nanoseconds spin_{WaitLimits{}.spin.count()};
  Nanoseconds yield_{WaitLimits{}.yield.count()};
  Nanoseconds nap_{WaitLimits{}.nap.count()};
  std::mutex mutex_;                 // of what follows, and of who clears the asleep words
  int sleepers_[2] = {};             // announced threads: on the futex, in epoll_wait
  Descriptor epoll_;                 // made with the first descriptor
  std::map<int, bool> descriptors_;  // those added, and whether room to write is wanted
};

// Orders what this thread stored before it with what it loads after it, as seen by other processors.
inline void full_fence() {
#ifdef __SANITIZE_THREAD__
  // TSan knows no fences. It needs none to follow the data, which acquire and release order; a locked
  // instruction gives the processors that TSan runs on the same order.
  std::atomic<int> here{0};
  here.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Wakes all sleepers of a doorbell; `ring` calls it.
void wake(Doorbell& doorbell, int event_fd);

// Wakes the owner of a doorbell if it sleeps. Call after publishing; costs one fence and one look at a line
// that rarely changes when nobody sleeps.
inline void ring(Doorbell& doorbell, int event_fd) {
  full_fence();
  if (doorbell.asleep.load(std::memory_order_relaxed) |
      doorbell.asleep_in_epoll.load(std::memory_order_relaxed)) {
    wake(doorbell, event_fd);
  }
}

}  // namespace pycomm
