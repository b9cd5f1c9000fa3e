// A communicator: runs calls, one at a time and in the order they were made, for an ordered set of ranks.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "executor/baton.h"
#include "executor/fork_guard.h"
#include "executor/watch.h"

namespace pycomm {

class Progress;

// What the caller hands over. All of it stays his, and in use until the operation is done.
struct Order {
  Prepared* prepared = nullptr;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::chrono::nanoseconds timeout{0};
};

// One call, from when it is made until it is done. Its state is read by any thread.
class Operation {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  // Rethrows what the operation failed with, if it did. Only when done.
  void check() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  friend class Communicator;
  void set_deadline() {
    call_.begun = Clock::now();
    call_.deadline = call_.begun + order_.timeout;
  }

  Order order_;
  Call call_;
  bool begun_ = false;
  std::exception_ptr error_;
  std::atomic<bool> done_{false};
};

class Communicator {
 public:
  // Called now and then while a thread waits; true ends the call (a pending signal).
  using Interrupted = bool (*)();

  Communicator(Members members, std::shared_ptr<Progress> progress, std::uint64_t slice_bytes);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const Members& members() const { return members_; }
  std::shared_ptr<Prepared> prepare(std::shared_ptr<const Bound> bound, const Request& request) const {
    return std::make_shared<Prepared>(members_, std::move(bound), request);
  }
  // False in a forked child, and when closed.
  bool usable() const { return !fork_guard_.in_child() && !closed_.load(std::memory_order_relaxed); }

  // Calls are made by one thread at a time, or their order would be left to chance, and so would be whether
  // the ranks agree on it. A thread enters, makes calls, and leaves; false while another is inside.
  bool enter() {
    bool free = false;
    return !inside_.load(std::memory_order_relaxed) &&
           inside_.compare_exchange_strong(free, true, std::memory_order_acquire);
  }
  void leave() { inside_.store(false, std::memory_order_release); }

  // What follows is for the thread inside. Throws CallError.
  // Does a call on this thread, after those already under way.
  void run(const Order& order, Interrupted interrupted);
  // The two halves of it, for a caller who holds up others (Python's interpreter lock). Begins the call and
  // does it if that takes no waiting worth the name; true if it is done. Else it must be finished.
  bool begin(const Order& order);
  void finish(Interrupted interrupted);
  // Begins a call that the progress thread does; one that is done at once never wakes it. The operation is a
  // new one, or one that is done.
  void start(const std::shared_ptr<Operation>& operation, const Order& order);
  std::shared_ptr<Operation> start(const Order& order);

  // For any thread. Helps until the operation is done or the time is over; whether it is done. Throws what
  // the operation failed with.
  bool wait(Operation& operation, std::optional<std::chrono::nanoseconds> timeout, Interrupted interrupted);
  // Fails what is under way, and every later call. Gives back the lanes.
  void close();

  // For the progress thread. Moves what can move; true if anything did. Does nothing while another thread
  // drives.
  bool drive();
  // After a long wait: faults, deadlines.
  void look();
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

 private:
  void check_usable() const;
  void issue(Operation& operation, const Order& order);
  Operation* front();
  bool drive_front();
  void link(Operation& operation);
  bool has_time_to_copy(const Bound& bound) const;
  void find_lanes(const Bound& bound);
  void recall(const Bound& bound);
  void look_at_front();
  void end(Operation& operation, std::exception_ptr error);
  void fail_all(const std::exception_ptr& error);
  template <typename Done>
  bool help(Done done, Clock::time_point until, Interrupted interrupted);

  Members members_;
  std::shared_ptr<Progress> progress_;
  std::uint64_t slice_bytes_;
  ForkGuard fork_guard_;

  std::atomic<bool> inside_{false};  // a thread is
  std::atomic<bool> closed_{false};
  std::atomic<std::size_t> pending_{0};  // started operations

  Baton baton_;  // guards everything below
  std::uint64_t sequence_ = 0;
  std::deque<std::shared_ptr<Operation>> started_;
  Operation blocking_;                     // the call of the thread inside, behind all started ones
  bool blocked_ = false;                   // there is one
  Execution execution_;                    // of the operation at the front
  std::vector<std::vector<Lane*>> lanes_;  // by channel and peer
  Watch watch_;
  std::exception_ptr broken_;  // set by the first failure; later calls fail with it
};

}  // namespace pycomm
