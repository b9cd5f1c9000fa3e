// The baton of a communicator: whoever holds it drives.
#pragma once

#include <sched.h>

#include <atomic>

namespace pycomm {

// A lock that is held for moments and that nobody queues for: drivers try, and pass by; the few who must have
// it (to end a call, to close) leave the CPU to its holder until they do. Costs one locked instruction.
class Baton {
 public:
  bool try_lock() {
    return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire);
  }
  void lock() {
    while (!try_lock()) sched_yield();
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace pycomm
