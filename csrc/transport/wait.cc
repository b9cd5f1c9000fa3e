#include "transport/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>

namespace pycomm {

namespace {

using std::chrono::nanoseconds;

constexpr std::uint32_t kSpinsPerClock = 32;   // polls between two looks at the clock
constexpr nanoseconds kLookInterval{100'000};  // between two looks at liveness
constexpr int kEvents = 4;  // they only end the sleep: the poll that follows finds them all

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void control_epoll(int epoll, int operation, int fd, bool write) {
  epoll_event event{};
  event.events = EPOLLIN | (write ? EPOLLOUT : 0u);
  event.data.fd = fd;
  if (epoll_ctl(epoll, operation, fd, &event) != 0) {
    throw std::system_error(errno, std::generic_category(), "epoll_ctl on descriptor " + std::to_string(fd));
  }
}

}  // namespace

void wake(Doorbell& doorbell, int event_fd) {
  if (doorbell.asleep.exchange(0) != 0) {
    doorbell.bell.fetch_add(1);
    // Not FUTEX_PRIVATE: the sleeper is another process that maps the same page.
    syscall(SYS_futex, &doorbell.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  if (doorbell.asleep_in_epoll.exchange(0) != 0) {
    eventfd_write(event_fd, 1);  // fails only when 2^64 rings are pending, and then the owner is awake
  }
}

void Waiter::set_limits(const WaitLimits& limits) {
  spin_.store(limits.spin.count(), std::memory_order_relaxed);
  yield_.store(limits.yield.count(), std::memory_order_relaxed);
  nap_.store(limits.nap.count(), std::memory_order_relaxed);
}

void Waiter::add_descriptor(int fd) {
  {
    std::lock_guard lock(mutex_);
    if (epoll_.get() < 0) {
      Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
      if (epoll.get() < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
      control_epoll(epoll.get(), EPOLL_CTL_ADD, event_fd_, false);
      epoll_ = std::move(epoll);
    }
    control_epoll(epoll_.get(), EPOLL_CTL_ADD, fd, false);
    descriptors_.emplace(fd, false);
  }
  ring(doorbell_, event_fd_);  // who sleeps on the futex would not hear this descriptor
}

void Waiter::remove_descriptor(int fd) {
  std::lock_guard lock(mutex_);
  // A transport that lost its peer may have put another file under the number; the set has then dropped the
  // old one by itself.
  if (descriptors_.erase(fd) != 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Waiter::want_write(int fd, bool wanted) {
  std::lock_guard lock(mutex_);
  auto found = descriptors_.find(fd);
  if (found == descriptors_.end() || found->second == wanted) return;
  control_epoll(epoll_.get(), EPOLL_CTL_MOD, fd, wanted);
  found->second = wanted;
}

void Waiter::sleep_on_futex(std::uint32_t seen, nanoseconds longest) {
  const timespec timeout{static_cast<time_t>(longest.count() / 1'000'000'000),
                         static_cast<long>(longest.count() % 1'000'000'000)};
  // Whatever it returns (rung, rung before, timed out, interrupted), the caller polls again.
  syscall(SYS_futex, &doorbell_.bell, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void Waiter::sleep_in_epoll(nanoseconds longest) {
  epoll_event events[kEvents];
  const auto milliseconds = (longest.count() + 999'999) / 1'000'000;
  epoll_wait(epoll_.get(), events, kEvents, static_cast<int>(std::min<long long>(milliseconds, INT_MAX)));
}

bool Waiter::Pause::idle(Clock::time_point deadline) {
  switch (stage_) {
    case Stage::kFresh:
      return start();
    case Stage::kSpin:
      return spin();
    case Stage::kYield:
      return yield();
    case Stage::kAnnounced:
      break;
  }
  return sleep(deadline);
}

bool Waiter::Pause::start() {
  spins_ = 0;
  if (waiter_.spin_.load(std::memory_order_relaxed) > 0) {
    stage_ = Stage::kSpin;
    return spin();
  }
  stage_ = Stage::kYield;
  since_ = looked_ = Clock::now();
  return yield();
}

bool Waiter::Pause::spin() {
  relax();
  if (++spins_ % kSpinsPerClock != 0) return false;
  const auto now = Clock::now();
  if (spins_ == kSpinsPerClock)
    since_ = looked_ = now;  // a microsecond late: most waits end without any clock
  if (now - since_ >= nanoseconds(waiter_.spin_.load(std::memory_order_relaxed))) stage_ = Stage::kYield;
  return due(now);
}

bool Waiter::Pause::yield() {
  sched_yield();
  const auto now = Clock::now();
  const nanoseconds awake(waiter_.spin_.load(std::memory_order_relaxed) +
                          waiter_.yield_.load(std::memory_order_relaxed));
  if (now - since_ >= awake) announce();
  return due(now);
}

// True when liveness was not looked at for a while.
bool Waiter::Pause::due(Clock::time_point now) {
  if (now - looked_ < kLookInterval) return false;
  looked_ = now;
  return true;
}

void Waiter::Pause::announce() {
  // Read before the announcement: a ring that answers it changes the bell, and the futex then does not sleep.
  seen_ = waiter_.doorbell_.bell.load();
  {
    std::lock_guard lock(waiter_.mutex_);
    in_epoll_ = !waiter_.descriptors_.empty();
    ++waiter_.sleepers_[in_epoll_];
    waiter_.asleep(in_epoll_).store(1);
  }
  announced_ = true;
  slept_ = false;
  stage_ = Stage::kAnnounced;
  full_fence();  // before the caller's next poll
}

bool Waiter::Pause::sleep(Clock::time_point deadline) {
  const auto now = Clock::now();
  const nanoseconds nap(waiter_.nap_.load(std::memory_order_relaxed));
  const nanoseconds longest = deadline < now + nap ? deadline - now : nap;
  if (longest.count() > 0) {
    slept_ = true;
    if (in_epoll_) {
      waiter_.sleep_in_epoll(longest);
    } else {
      waiter_.sleep_on_futex(seen_, longest);
    }
  }
  retire();
  stage_ = Stage::kYield;  // and from there to the next announcement, unless there is progress
  looked_ = Clock::now();
  return true;
}

void Waiter::Pause::retire() {
  std::lock_guard lock(waiter_.mutex_);
  announced_ = false;
  if (--waiter_.sleepers_[in_epoll_] > 0) return;
  waiter_.asleep(in_epoll_).store(0);
  // The eventfd is emptied by the last to leave: while it is full no thread misses that it was rung. One who
  // leaves without having slept may leave a ring behind; it costs the next sleeper one sleep that ends at
  // once.
  if (in_epoll_ && slept_) {
    eventfd_t rings;
    eventfd_read(waiter_.event_fd_, &rings);
  }
}

}  // namespace pycomm
