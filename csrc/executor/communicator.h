// A communicator: runs calls, one at a time and in the order they were made, for an ordered set of ranks.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "executor/fork_guard.h"
#include "executor/watch.h"

namespace pycomm {

class Progress;

// What the caller hands over. The memory stays his, and in use until the operation is done.
struct Order {
  std::shared_ptr<const Bound> bound;
  Request request;
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
  Order order_;
  Call call_;
  bool begun_ = false;
  std::exception_ptr error_;
  std::atomic<bool> done_{false};
};

class Communicator {
 public:
  // Called now and then while a thread waits; true ends the call (a pending signal).
  using Interrupted = std::function<bool()>;

  Communicator(Members members, std::shared_ptr<Progress> progress, std::uint64_t slice_bytes);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const Members& members() const { return members_; }

  // Does a call on this thread, after those already under way. Throws CallError.
  void run(const Order& order, const Interrupted& interrupted);
  // Begins a call that the progress thread does. Throws CallError for a call that cannot begin.
  std::shared_ptr<Operation> start(const Order& order);
  // Helps until the operation is done or the time is over; whether it is done. Throws what the operation
  // failed with.
  bool wait(Operation& operation, std::optional<std::chrono::nanoseconds> timeout,
            const Interrupted& interrupted);
  // Fails what is under way, and every later call. Gives back the lanes.
  void close();

  // For the progress thread. Moves what can move; true if anything did. Does nothing while another thread
  // drives.
  bool drive();
  // After a long wait: faults, deadlines.
  void look();
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

 private:
  std::shared_ptr<Operation> issue(const Order& order);
  void check_usable() const;
  bool drive_front();
  void begin(Operation& operation);
  bool has_time_to_copy(const Bound& bound) const;
  void look_at_front();
  void finish(Operation& operation, std::exception_ptr error);
  void fail_all(const std::exception_ptr& error);
  void find_lanes(const Bound& bound);
  void recall(const Bound& bound);
  template <typename Done>
  bool help(Done done, Clock::time_point until, const Interrupted& interrupted);

  Members members_;
  std::shared_ptr<Progress> progress_;
  std::uint64_t slice_bytes_;
  ForkGuard fork_guard_;

  std::mutex issue_;  // the order of calls
  std::uint64_t sequence_ = 0;
  std::atomic<std::thread::id> caller_{};  // the thread inside a blocking call, if any
  std::atomic<bool> closed_{false};

  // The baton: whoever holds it drives. Guards everything below.
  std::mutex baton_;
  std::deque<std::shared_ptr<Operation>> queue_;
  std::atomic<std::size_t> pending_{0};
  Execution execution_;                    // of the operation at the front
  std::vector<std::vector<Lane*>> lanes_;  // by channel and peer
  Watch watch_;
  std::exception_ptr broken_;  // set by the first failure; later calls fail with it
};

}  // namespace pycomm
