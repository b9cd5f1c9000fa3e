#include "executor/communicator.h"

#include <utility>

#include "executor/progress.h"

namespace pycomm {
namespace {

// Marks a thread as the one inside a blocking call; a second one is refused, for the order of the two calls
// would be left to chance, and so would be whether the ranks agree on it.
class Inside {
 public:
  explicit Inside(std::atomic<std::thread::id>& caller) : caller_(caller) {
    std::thread::id nobody{};
    if (!caller_.compare_exchange_strong(nobody, std::this_thread::get_id()))
      throw CallError(
          ErrorKind::kInvalid, -1,
          "another thread is inside a call on this communicator; give each thread a communicator of its "
          "own (comm.split)");
  }
  ~Inside() { caller_.store(std::thread::id{}); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  std::atomic<std::thread::id>& caller_;
};

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

std::shared_ptr<Operation> Communicator::issue(const Order& order) {
  if (fork_guard_.in_child()) check_usable();  // a mutex may be locked in the child for ever
  auto operation = std::make_shared<Operation>();
  const std::scoped_lock lock(issue_, baton_);
  check_usable();
  operation->order_ = order;
  Call& call = operation->call_;
  call.bound = order.bound.get();
  call.request = order.request;
  call.request.communicator = members_.communicator;
  call.request.size = static_cast<std::uint32_t>(members_.size());
  call.fingerprint = call.request.fingerprint();
  call.sequence = ++sequence_;
  call.begun = Clock::now();
  call.deadline = call.begun + order.timeout;
  queue_.push_back(operation);
  pending_.fetch_add(1, std::memory_order_release);
  return operation;
}

void Communicator::run(const Order& order, const Interrupted& interrupted) {
  const Inside inside(caller_);
  const auto operation = issue(order);
  const auto done = [&] { return operation->done(); };
  if (!help(done, operation->call_.deadline, interrupted)) {
    const std::scoped_lock lock(baton_);
    if (!operation->done())
      fail_all(std::make_exception_ptr(CallError(
          ErrorKind::kTimedOut, -1,
          operation->call_.request.text(operation->call_.sequence) + " did not begin in time, behind " +
              std::to_string(queue_.size() - 1) + " earlier calls; wait for those first")));
  }
  operation->check();
}

std::shared_ptr<Operation> Communicator::start(const Order& order) {
  const Inside inside(caller_);
  auto operation = issue(order);
  progress_->add(*this);
  return operation;
}

bool Communicator::wait(Operation& operation, std::optional<std::chrono::nanoseconds> timeout,
                        const Interrupted& interrupted) {
  if (fork_guard_.in_child()) check_usable();
  const auto until = timeout ? Clock::now() + *timeout : Clock::time_point::max();
  if (!help([&] { return operation.done(); }, until, interrupted)) return false;
  operation.check();
  return true;
}

// Drives, sleeps and watches until done() or the time is over.
template <typename Done>
bool Communicator::help(Done done, Clock::time_point until, const Interrupted& interrupted) {
  Waiter::Pause pause(members_.fabric->waiter());
  while (!done()) {
    if (drive() || members_.fabric->poll()) {
      pause.reset();
    } else if (pause.idle(until)) {
      look();
      if (interrupted && interrupted()) {
        const std::scoped_lock lock(baton_);
        try {
          if (!queue_.empty()) watch_.interrupted(queue_.front()->call_);
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
  return lock.owns_lock() && drive_front();
}

void Communicator::look() {
  const std::unique_lock lock(baton_, std::try_to_lock);
  if (lock.owns_lock()) look_at_front();
}

bool Communicator::drive_front() {
  if (queue_.empty()) return false;
  const auto operation = queue_.front();
  try {
    try {
      if (!operation->begun_) begin(*operation);
      const bool moved = execution_.advance();
      if (!execution_.done()) return moved;
      members_.fabric->acknowledge();
      finish(*operation, nullptr);
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

void Communicator::begin(Operation& operation) {
  const Order& order = operation.order_;
  find_lanes(*order.bound);
  watch_.announce(operation.call_);
  if (!order.bound->receives()) watch_.compare(operation.call_);
  const Envelope envelope{operation.call_.fingerprint, operation.call_.sequence, 0};
  const Streaming streaming{slice_bytes_, !has_time_to_copy(*order.bound)};
  execution_.begin(*order.bound, order.input, order.output, lanes_, envelope, streaming);
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
  if (queue_.empty() || !queue_.front()->begun_) return;
  try {
    watch_.look(queue_.front()->call_, execution_);
  } catch (...) {
    fail_all(std::current_exception());
  }
}

void Communicator::finish(Operation& operation, std::exception_ptr error) {
  operation.error_ = std::move(error);
  operation.done_.store(true, std::memory_order_release);
  queue_.pop_front();
  pending_.fetch_sub(1, std::memory_order_release);
}

void Communicator::fail_all(const std::exception_ptr& error) {
  if (!broken_) broken_ = error;
  if (!queue_.empty() && queue_.front()->begun_) recall(*queue_.front()->order_.bound);
  while (!queue_.empty()) {
    const auto operation = queue_.front();
    finish(*operation, error);
  }
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
