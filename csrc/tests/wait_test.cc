// Waiting: no ring is lost, whoever sleeps where; sockets and deadlines end a sleep as well.
#include "transport/wait.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

using namespace pycomm;
using namespace std::chrono_literals;

namespace {

constexpr WaitLimits kSleepAtOnce{0ns, 0ns, 20s};  // so that a lost ring shows
constexpr auto kSoon = 10s;

// One rank's doorbell and waiter, with a pipe among the descriptors if it is to sleep in epoll_wait.
struct Sleeper {
  explicit Sleeper(bool in_epoll, const WaitLimits& limits = kSleepAtOnce) {
    if (pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    waiter.set_limits(limits);
    if (in_epoll) waiter.add_descriptor(ends[0]);
  }
  ~Sleeper() {
    close(ends[0]);
    close(ends[1]);
  }

  // Waits until done(), and returns how long that took.
  template <class F>
  Clock::duration wait(F done) {
    const auto start = Clock::now();
    Waiter::Pause pause(waiter);
    while (!done() && Clock::now() - start < 2 * kSoon) pause.idle(Clock::time_point::max());
    return Clock::now() - start;
  }
  void ring() { pycomm::ring(doorbell, event_fd.get()); }
  void write_pipe() { CHECK_EQ(write(ends[1], "x", 1), 1); }
  bool read_pipe() {
    char byte;
    return read(ends[0], &byte, 1) == 1;
  }
  bool somebody_sleeps() { return doorbell.asleep.load() != 0 || doorbell.asleep_in_epoll.load() != 0; }

  Descriptor event_fd{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  Doorbell doorbell;
  Waiter waiter{doorbell, event_fd.get()};
  std::array<int, 2> ends{};
};

void until_asleep(Sleeper& sleeper) {
  while (!sleeper.somebody_sleeps()) std::this_thread::yield();
  std::this_thread::sleep_for(5ms);  // from the announcement into the kernel
}

// Two threads of each of two ranks play two games of ping-pong over one pair of waiters.
void ping_pong(bool left_in_epoll, bool right_in_epoll, int rounds) {
  struct alignas(64) Ball {
    std::atomic<int> at{0};
  };
  Sleeper left(left_in_epoll), right(right_in_epoll);
  std::array<Ball, 2> balls;
  std::atomic<long long> slowest{0};
  const auto play = [&](Sleeper& mine, Sleeper& other, Ball& ball, int first) {
    for (int i = first; i < 2 * rounds; i += 2) {
      const auto took = mine.wait([&] { return ball.at.load(std::memory_order_acquire) == i; });
      if (took.count() > slowest.load()) slowest.store(took.count());
      ball.at.store(i + 1, std::memory_order_release);
      other.ring();
    }
  };
  std::vector<std::thread> threads;
  for (auto& ball : balls) {
    threads.emplace_back([&] { play(left, right, ball, 0); });
    threads.emplace_back([&] { play(right, left, ball, 1); });
  }
  for (auto& thread : threads) thread.join();
  CHECK(Clock::duration(slowest.load()) < kSoon);
  CHECK_EQ(balls[0].at.load(), 2 * rounds);
  CHECK_EQ(balls[1].at.load(), 2 * rounds);
  CHECK(!left.somebody_sleeps() && !right.somebody_sleeps());
}

// One ring wakes both threads that sleep on one waiter; each then waits for its own word.
void both_wake(bool in_epoll) {
  for (int round = 0; round < 20; ++round) {
    Sleeper sleeper(in_epoll);
    std::atomic<int> awake{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        CHECK(sleeper.wait([&] { return go.load(); }) < kSoon);
        ++awake;
      });
    }
    until_asleep(sleeper);
    go.store(true);
    sleeper.ring();
    for (auto& thread : threads) thread.join();
    CHECK_EQ(awake.load(), 2);
  }
}

}  // namespace

TEST(no_ring_is_lost_on_the_futex) { ping_pong(false, false, 5'000); }
TEST(no_ring_is_lost_in_epoll) { ping_pong(true, true, 5'000); }
TEST(no_ring_is_lost_between_futex_and_epoll) { ping_pong(false, true, 5'000); }
TEST(one_ring_wakes_both_threads_on_the_futex) { both_wake(false); }
TEST(one_ring_wakes_both_threads_in_epoll) { both_wake(true); }

TEST(a_descriptor_ends_a_sleep) {
  Sleeper sleeper(true);
  std::thread writer([&] {
    until_asleep(sleeper);
    sleeper.write_pipe();
  });
  CHECK(sleeper.wait([&] { return sleeper.read_pipe(); }) < kSoon);
  writer.join();
}

TEST(a_new_descriptor_is_heard_by_who_sleeps_on_the_futex) {
  Sleeper sleeper(false);
  std::thread writer([&] {
    until_asleep(sleeper);
    sleeper.waiter.add_descriptor(sleeper.ends[0]);
    std::this_thread::sleep_for(5ms);
    sleeper.write_pipe();
  });
  CHECK(sleeper.wait([&] { return sleeper.read_pipe(); }) < kSoon);
  writer.join();
}

TEST(a_removed_descriptor_is_not_heard) {
  Sleeper sleeper(true, {0ns, 0ns, 30ms});
  sleeper.write_pipe();
  sleeper.waiter.remove_descriptor(sleeper.ends[0]);
  sleeper.waiter.remove_descriptor(sleeper.ends[0]);
  Waiter::Pause pause(sleeper.waiter);
  const auto start = Clock::now();
  pause.idle(Clock::time_point::max());  // announces
  CHECK(pause.idle(Clock::time_point::max()));
  CHECK(Clock::now() - start >= 29ms);
}

TEST(room_to_write_ends_a_sleep_when_wanted) {
  Sleeper sleeper(false, {0ns, 0ns, 30ms});
  sleeper.waiter.add_descriptor(sleeper.ends[1]);  // there is room all the time
  for (bool wanted : {false, true, false}) {
    sleeper.waiter.want_write(sleeper.ends[1], wanted);
    Waiter::Pause pause(sleeper.waiter);
    const auto start = Clock::now();
    pause.idle(Clock::time_point::max());
    CHECK(pause.idle(Clock::time_point::max()));
    if (!wanted) CHECK(Clock::now() - start >= 29ms);
  }
}

TEST(a_sleep_ends_at_the_deadline) {
  for (bool in_epoll : {false, true}) {
    Sleeper sleeper(in_epoll);
    Waiter::Pause pause(sleeper.waiter);
    const auto deadline = Clock::now() + 20ms;
    while (Clock::now() < deadline) pause.idle(deadline);
    CHECK(Clock::now() - deadline < kSoon);
    CHECK(pause.idle(deadline) || pause.idle(deadline));  // over already: no sleep, and the caller looks
  }
}

TEST(a_long_wait_lets_the_caller_look_now_and_then) {
  for (const WaitLimits& limits : {WaitLimits{20s, 0ns, 20s}, WaitLimits{0ns, 20s, 20s}}) {
    Sleeper sleeper(false, limits);
    Waiter::Pause pause(sleeper.waiter);
    const auto start = Clock::now();
    long looks = 0, polls = 0;
    for (; Clock::now() - start < 4ms; ++polls) looks += pause.idle(Clock::time_point::max());
    CHECK(looks >= 1 && looks <= (Clock::now() - start) / 100us + 1);
    if (limits.spin > 0ns) CHECK(polls >= 32 * looks);  // and the clock is not read at every poll
    CHECK(!sleeper.somebody_sleeps());
  }
}

TEST(progress_ends_the_announcement) {
  for (bool in_epoll : {false, true}) {
    Sleeper sleeper(in_epoll);
    Waiter::Pause pause(sleeper.waiter);
    pause.idle(Clock::time_point::max());
    CHECK(sleeper.somebody_sleeps());
    pause.reset();
    CHECK(!sleeper.somebody_sleeps());
    {
      Waiter::Pause other(sleeper.waiter);
      other.idle(Clock::time_point::max());
    }
    CHECK(!sleeper.somebody_sleeps());
  }
}

TEST(a_ring_between_announcement_and_sleep_is_not_lost) {
  for (bool in_epoll : {false, true}) {
    Sleeper sleeper(in_epoll);
    Waiter::Pause pause(sleeper.waiter);
    pause.idle(Clock::time_point::max());
    sleeper.ring();
    const auto start = Clock::now();
    CHECK(pause.idle(Clock::time_point::max()));
    CHECK(Clock::now() - start < kSoon);
  }
}

TEST(a_ring_costs_one_system_call_however_many_are_published) {
  Sleeper sleeper(true);
  Waiter::Pause pause(sleeper.waiter);
  pause.idle(Clock::time_point::max());
  for (int i = 0; i < 1000; ++i) sleeper.ring();
  eventfd_t rings = 0;
  CHECK_EQ(eventfd_read(sleeper.event_fd.get(), &rings), 0);
  CHECK_EQ(rings, 1);
}
