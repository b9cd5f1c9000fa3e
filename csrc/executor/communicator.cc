#include "executor/communicator.h"

#include <mutex>
#include <utility>

#include "executor/progress.h"

namespace pycomm {
namespace {

// Polls before a call counts as waiting: half a microsecond to a microsecond, in which a peer that calls at
// the same time has answered.
constexpr int kFirstPolls = 24;

}  // namespace

Communicator::Communicator(Members members, std::shared_ptr<Progress> progress, std::uint64_t slice_bytes)
    : members_(std::move(members)),
      progress_(std::move(progress)),
      slice_bytes_(slice_bytes),
      watch_(members_) {}

Communicator::~Communicator() { close(); }

void Communicator::check_usable() const {
  if (fork_guard_.in_child())
    throw CallError(
        ErrorKind::kInvalid, -1,
        "this process was forked from the one that made the communicator; only that one can use it: call "
        "pycomm.init() in the child, or start it with the spawn method");
  if (closed_)
    throw CallError(ErrorKind::kInvalid, -1, "the communicator is closed; make a new one with pycomm.init()");
  if (!broken_) return;
  try {
    std::rethrow_exception(broken_);
  } catch (const CallError& error) {
    throw CallError(
        error.kind, error.culprit,
        std::string("the communicator failed in an earlier call and is of no more use: ") + error.what());
  }
}

// Puts the call in its place in the order of calls. For who holds the baton.
void Communicator::issue(Operation& operation, const Order& order) {
  check_usable();
  operation.order_ = order;
  operation.call_.prepared = order.prepared;
  operation.call_.sequence = ++sequence_;
  operation.begun_ = false;
  operation.done_.store(false, std::memory_order_relaxed);
}

bool Communicator::begin(const Order& order) {
  if (fork_guard_.in_child()) check_usable();  // the baton may be held in the child for ever
  const std::scoped_lock lock(baton_);
  issue(blocking_, order);
  blocked_ = true;
  if (started_.empty()) {
    const int polls = members_.fabric->spins() ? kFirstPolls : 1;
    for (int poll = 0; poll < polls && blocked_; ++poll) drive_front();
    execution_.ring();
    if (!blocked_) {
      blocking_.check();
      return true;
    }
  }
  blocking_.set_deadline();
  return false;
}

void Communicator::finish(Interrupted interrupted) {
  const auto done = [&] { return blocking_.done(); };
  if (!help(done, blocking_.call_.deadline, interrupted)) {
    const std::scoped_lock lock(baton_);
    if (blocked_)
      fail_all(std::make_exception_ptr(CallError(ErrorKind::kTimedOut, -1,
                                                 blocking_.call_.text() + " did not begin in time, behind " +
                                                     std::to_string(started_.size()) +
                                                     " earlier calls; wait for those first")));
  }
  blocking_.check();
}

void Communicator::run(const Order& order, Interrupted interrupted) {
  if (!begin(order)) finish(interrupted);
}

void Communicator::start(const std::shared_ptr<Operation>& operation, const Order& order) {
  if (fork_guard_.in_child()) check_usable();
  {
    const std::scoped_lock lock(baton_);
    issue(*operation, order);
    operation->set_deadline();
    started_.push_back(operation);
    pending_.fetch_add(1, std::memory_order_release);
    if (started_.size() == 1) {  // what it sends need not wait until the progress thread is awake
      drive_front();
      execution_.ring();
    }
    if (operation->done()) return;
  }
  progress_->add(*this);
}

std::shared_ptr<Operation> Communicator::start(const Order& order) {
  const auto operation = std::make_shared<Operation>();
  start(operation, order);
  return operation;
}

bool Communicator::wait(Operation& operation, std::optional<std::chrono::nanoseconds> timeout,
                        Interrupted interrupted) {
  if (fork_guard_.in_child()) check_usable();
  const auto until = timeout ? Clock::now() + *timeout : Clock::time_point::max();
  if (!help([&] { return operation.done(); }, until, interrupted)) return false;
  operation.check();
  return true;
}

// Drives, sleeps and watches until done() or the time is over.
template <typename Done>
bool Communicator::help(Done done, Clock::time_point until, Interrupted interrupted) {
  Waiter::Pause pause(members_.fabric->waiter());
  while (!done()) {
    if (drive() || members_.fabric->poll()) {
      pause.reset();
    } else if (pause.idle(until)) {
      look();
      if (interrupted != nullptr && interrupted()) {
        const std::scoped_lock lock(baton_);
        try {
          if (Operation* operation = front()) watch_.interrupted(operation->call_);
        } catch (...) {
          fail_all(std::current_exception());
        }
      }
      if (Clock::now() >= until) break;
    }
  }
  return done();
}

bool Communicator::drive() {
  const std::unique_lock lock(baton_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const bool moved = drive_front();
  execution_.ring();
  return moved;
}

void Communicator::look() {
  const std::unique_lock lock(baton_, std::try_to_lock);
  if (lock.owns_lock()) look_at_front();
}

// The operation whose turn it is.
Operation* Communicator::front() {
  if (!started_.empty()) return started_.front().get();
  return blocked_ ? &blocking_ : nullptr;
}

bool Communicator::drive_front() {
  Operation* const operation = front();
  if (operation == nullptr) return false;
  try {
    try {
      if (!operation->begun_) link(*operation);
      const bool moved = execution_.advance();
      if (!execution_.done()) return moved;
      members_.fabric->acknowledge();
      end(*operation, nullptr);
    } catch (const UnlikeMessage& message) {
      watch_.mismatch(operation->call_, message.peer);
    } catch (const PeerLostError& error) {
      watch_.lost(operation->call_, execution_, error.peer, error.what());
    }
  } catch (...) {
    fail_all(std::current_exception());
  }
  return true;
}

// Announces the operation and gives the execution what it needs for it.
void Communicator::link(Operation& operation) {
  const Order& order = operation.order_;
  const Bound& bound = order.prepared->bound();
  if (!order.prepared->linked_) {
    find_lanes(bound);
    order.prepared->linked_ = true;
  }
  watch_.announce(operation.call_);
  if (!bound.receives()) watch_.compare(operation.call_);
  const Envelope envelope{order.prepared->fingerprint(), operation.call_.sequence, 0};
  const Streaming streaming{slice_bytes_, !has_time_to_copy(bound)};
  execution_.begin(bound, order.input, order.output, lanes_, envelope, streaming);
  operation.begun_ = true;
}

// A rank that only sends, and to one peer, would wait while that peer copies: on a core of its own it does
// half of the work instead. Any other is better off with half of the copies.
bool Communicator::has_time_to_copy(const Bound& bound) const {
  return !bound.receives() && bound.peers() == 1 && members_.fabric->waiter().spins();
}

void Communicator::find_lanes(const Bound& bound) {
  const std::size_t channels = bound.channels().size();
  while (lanes_.size() < channels) lanes_.emplace_back(static_cast<std::size_t>(members_.size()), nullptr);
  for (const auto& [channel, peer] : bound.links()) {
    Lane*& lane = lanes_[static_cast<std::size_t>(channel)][static_cast<std::size_t>(peer)];
    if (lane == nullptr)
      lane = &members_.fabric->endpoint(members_.job_rank(peer))
                  .lane(members_.communicator, static_cast<std::uint16_t>(channel));
  }
}

void Communicator::look_at_front() {
  Operation* const operation = front();
  if (operation == nullptr || !operation->begun_) return;
  try {
    watch_.look(operation->call_, execution_);
  } catch (...) {
    fail_all(std::current_exception());
  }
}

// Only the operation at the front ends. It may be gone afterwards.
void Communicator::end(Operation& operation, std::exception_ptr error) {
  operation.error_ = std::move(error);
  if (started_.empty()) {
    blocked_ = false;
    operation.done_.store(true, std::memory_order_release);
    return;
  }
  const auto held = std::move(started_.front());
  started_.pop_front();
  held->done_.store(true, std::memory_order_release);
  pending_.fetch_sub(1, std::memory_order_release);
}

void Communicator::fail_all(const std::exception_ptr& error) {
  if (!broken_) broken_ = error;
  Operation* operation = front();
  if (operation != nullptr && operation->begun_) recall(operation->order_.prepared->bound());
  for (; operation != nullptr; operation = front()) end(*operation, error);
}

// The callers get their memory back: no peer may take what they now write there for what was sent.
void Communicator::recall(const Bound& bound) {
  for (const auto& [channel, peer] : bound.links())
    lanes_[static_cast<std::size_t>(channel)][static_cast<std::size_t>(peer)]->recall();
}

void Communicator::close() {
  if (closed_.exchange(true) || fork_guard_.in_child()) return;
  progress_->remove(*this);
  const std::scoped_lock lock(baton_);
  fail_all(std::make_exception_ptr(
      CallError(ErrorKind::kInvalid, -1, "the communicator was closed before this operation was done")));
  lanes_.clear();
  members_.fabric->forget(members_.communicator);
}

}  // namespace pycomm
