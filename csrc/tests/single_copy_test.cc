// Single copy: large messages are read out of the sender's memory, never torn, whatever becomes of the
// sender.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

#include "check.h"
#include "pattern.h"
#include "ranks.h"
#include "shm_traffic.h"
#include "transport/fabric.h"

using namespace pycomm;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kLeast = 50'000;
constexpr std::size_t kMany = 4 << 20;

void exchange_with_loans(Fabric& fabric, int communicators, int channels, int messages) {
  fabric.set_single_copy(kLeast);
  CHECK(exchange_all(fabric, communicators, channels, messages) > 0);
}

// Publishes all of `data` without a copy. It must stay as it is.
void lend(Fabric& fabric, int peer, const std::byte* data, std::size_t bytes) {
  fabric.set_single_copy(kLeast);
  Lane& lane = fabric.endpoint(peer).lane(1, 0);
  drive(fabric, [&] { return lane.begin({1, 1, bytes}) ? Step::kDone : Step::kStuck; });
  std::size_t lent = 0;
  drive(fabric, [&] {  // from when on the receiver says that it can read our memory
    lent = lane.lend(data, bytes);
    return lent > 0 ? Step::kDone : Step::kStuck;
  });
  CHECK_EQ(lent, bytes);
}

// Waits until the peer's next message is there.
Lane& await(Fabric& fabric, int peer) {
  Lane& lane = fabric.endpoint(peer).lane(1, 0);
  drive(fabric, [&] { return lane.head() != nullptr ? Step::kDone : Step::kStuck; });
  return lane;
}

// Takes tile after tile until it fails, and says why: all that came before has to be right.
std::string take_until_failure(Lane& lane, const std::vector<std::byte>& expected) {
  std::size_t taken = 0;
  try {
    while (lane.head() != nullptr) {
      const auto seen = lane.peek();
      CHECK(std::memcmp(seen.data(), expected.data() + taken, seen.size()) == 0);
      taken += seen.size();
      lane.pop(seen.size());
    }
  } catch (const PeerLostError& error) {
    return error.what();
  }
  return "all of it came";
}

// The sender's call fails and its user writes what he likes, at any moment of the receiver's reading.
void recall_while_read(Fabric& fabric) {
  const auto data = pattern(7, kMany);
  for (int round = 0; round < 30; ++round) {
    Fabric& mine = fabric;
    if (mine.rank() == 0) {
      auto copy = data;
      Lane& lane = mine.endpoint(1).lane(static_cast<std::uint32_t>(round), 0);
      mine.set_single_copy(kLeast);
      CHECK(lane.begin({1, 1, copy.size()}));
      drive(mine, [&] { return lane.lend(copy.data(), copy.size()) > 0 ? Step::kDone : Step::kStuck; });
      std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
      lane.recall();
      std::ranges::fill(copy, std::byte{0xee});
      receive(mine, 1, 1000);  // the receiver has seen how it ended
    } else {
      Lane& lane = mine.endpoint(0).lane(static_cast<std::uint32_t>(round), 0);
      drive(mine, [&] { return lane.head() != nullptr ? Step::kDone : Step::kStuck; });
      const std::string end = take_until_failure(lane, data);
      CHECK(end == "all of it came" || end.find("took back what it was sending") != std::string::npos);
      send(mine, 0, 1000, std::vector<std::byte>(1));
    }
  }
}

bool stopped(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
  std::string word;  // number, name, state
  for (int i = 0; i < 3; ++i) status >> word;
  return word == "T";
}

void* secret_memory(std::size_t bytes) {
#ifdef SYS_memfd_secret
  const Descriptor fd(static_cast<int>(syscall(SYS_memfd_secret, 0)));
  if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return MAP_FAILED;
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
#else
  return bytes > 0 ? MAP_FAILED : nullptr;
#endif
}

}  // namespace

TEST(loans_and_slices_on_all_lanes_between_threads) {
  ranks::as_threads(3, [](Fabric& fabric) { exchange_with_loans(fabric, 2, 3, 25); });
}

TEST(loans_and_slices_on_all_lanes_between_processes) {
  ranks::as_processes(3, [](Fabric& fabric) { exchange_with_loans(fabric, 2, 3, 25); });
}

TEST(a_long_stream_with_loans_between_processes) {
  ranks::as_processes(2, [](Fabric& fabric) { exchange_with_loans(fabric, 1, 1, 500); });
}

TEST(nothing_is_lent_unless_a_size_is_set) {
  ranks::as_threads(2, [](Fabric& fabric) { CHECK_EQ(exchange_all(fabric, 1, 1, 50), 0); });
}

TEST(released_means_read_to_the_end) {
  auto fabrics = Fabric::in_memory(2);
  const auto data = pattern(1, 300'000);
  lend(*fabrics[0], 1, data.data(), data.size());
  Lane& out = fabrics[0]->endpoint(1).lane(1, 0);
  Lane& in = fabrics[1]->endpoint(0).lane(1, 0);
  CHECK_EQ(in.head()->bytes, data.size());
  std::vector<std::byte> got(data.size());
  CHECK_EQ(in.pull(got.data(), got.size() - 1), got.size() - 1);
  CHECK(!out.released());
  CHECK_EQ(in.pull(got.data() + got.size() - 1, 1), 1);
  CHECK(out.released());
  CHECK(same(got, data));
  CHECK_EQ(fabrics[0]->counters(1).sent_bytes, data.size());
  CHECK_EQ(fabrics[1]->counters(0).received_bytes, data.size());
}

TEST(tiles_hold_whole_elements) {
  auto fabrics = Fabric::in_memory(2);
  const auto data = pattern(1, 1'000'003);
  lend(*fabrics[0], 1, data.data(), data.size());
  Lane& in = fabrics[1]->endpoint(0).lane(1, 0);
  std::vector<std::byte> got(5);
  CHECK_EQ(in.pull(got.data(), 5), 5);
  while (in.head() != nullptr) {
    const auto seen = in.peek();
    const std::size_t end = got.size() + seen.size();
    CHECK(end % 8 == 0 || end == data.size());
    got.insert(got.end(), seen.begin(), seen.end());
    in.pop(seen.size());
  }
  CHECK(same(got, data));
}

TEST(what_is_recalled_is_never_taken_for_what_was_sent_between_threads) {
  ranks::as_threads(2, recall_while_read);
}

TEST(what_is_recalled_is_never_taken_for_what_was_sent_between_processes) {
  ranks::as_processes(2, recall_while_read);
}

TEST(a_sender_killed_while_it_is_read_is_lost) {
  const auto data = pattern(3, kMany);
  ranks::as_processes(
      2,
      [&](Fabric& fabric) {
        if (fabric.rank() == 0) {
          lend(fabric, 1, data.data(), data.size());
          receive(fabric, 1, 2);
          raise(SIGKILL);
        }
        Lane& lane = await(fabric, 0);
        lane.pop(lane.peek().size());
        send(fabric, 0, 2, std::vector<std::byte>(1));
        const auto deadline = Clock::now() + kPatience;
        std::string end;
        while (end.empty() && Clock::now() < deadline) {
          std::this_thread::sleep_for(20ms);  // slower than the sender's death
          try {
            lane.pop(lane.peek().size());
          } catch (const PeerLostError& error) {
            CHECK_EQ(error.peer, 0);
            end = error.what();
          }
        }
        CHECK_EQ(end, "rank 0 died");
      },
      0);
}

TEST(a_stopped_sender_can_be_read) {
  const auto data = pattern(3, kMany);
  ranks::as_processes(2, [&](Fabric& fabric) {
    if (fabric.rank() == 0) {
      const pid_t pid = getpid();
      std::vector<std::byte> number(sizeof(pid));
      std::memcpy(number.data(), &pid, sizeof(pid));
      send(fabric, 1, 2, number);
      lend(fabric, 1, data.data(), data.size());
      raise(SIGSTOP);
      CHECK(fabric.endpoint(1).lane(1, 0).released());
    } else {
      pid_t pid;
      std::memcpy(&pid, receive(fabric, 0, 2).data(), sizeof(pid));
      Lane& lane = await(fabric, 0);
      while (!stopped(pid)) std::this_thread::sleep_for(1ms);
      CHECK_EQ(take_until_failure(lane, data), "all of it came");
      kill(pid, SIGCONT);
    }
  });
}

TEST(memory_that_went_away_is_an_error) {
  const auto data = pattern(3, kMany);
  ranks::as_processes(2, [&](Fabric& fabric) {
    if (fabric.rank() == 0) {
      void* memory = mmap(nullptr, kMany, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      std::memcpy(memory, data.data(), kMany);
      lend(fabric, 1, static_cast<std::byte*>(memory), kMany);
      munmap(static_cast<std::byte*>(memory) + kMany / 2, kMany / 2);
      send(fabric, 1, 2, std::vector<std::byte>(1));
      receive(fabric, 1, 2);
    } else {
      Lane& lane = await(fabric, 0);
      receive(fabric, 0, 2);
      const std::string end = take_until_failure(lane, data);
      CHECK(end.find("memory that cannot be read") != std::string::npos);
      send(fabric, 0, 2, std::vector<std::byte>(1));
    }
  });
}

TEST(a_process_that_is_not_the_one_that_was_tried_counts_as_gone) {
  std::optional<MemoryToken> token(std::in_place);
  const Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const PeerMemory memory = PeerMemory::of_process(pidfd.get(), token->place());
  CHECK_EQ(memory.why_not(), "");
  const auto data = pattern(1, 5000);
  std::vector<std::byte> got(data.size());
  CHECK_EQ(memory.read(got.data(), reinterpret_cast<std::uint64_t>(data.data()), data.size()), 0);
  CHECK(same(got, data));
  auto* number = reinterpret_cast<std::uint64_t*>(token->place().address);
  ++*number;  // as in another program at the same address
  CHECK_EQ(memory.read(got.data(), reinterpret_cast<std::uint64_t>(data.data()), data.size()), ESRCH);
  CHECK(!PeerMemory::of_process(pidfd.get(), {1, {2, 3}}).readable());
  CHECK(!PeerMemory::of_process(-1, token->place()).readable());
}

TEST(memory_that_only_its_process_can_read_is_copied) {
  const auto data = pattern(3, 1 << 20);
  void* memory = secret_memory(data.size());
  if (memory == MAP_FAILED) {
    std::cout << "skipped: this system has no memfd_secret" << std::endl;
    return;
  }
  ranks::as_processes(2, [&](Fabric& fabric) {
    if (fabric.rank() == 1) return CHECK(same(receive(fabric, 0, 1), data));
    auto* bytes = static_cast<std::byte*>(memory);
    std::memcpy(bytes, data.data(), data.size());
    fabric.set_single_copy(kLeast);
    Lane& lane = fabric.endpoint(1).lane(1, 0);
    CHECK(lane.begin({1, 1, data.size()}));
    std::size_t done = 0;
    drive(fabric, [&] {
      CHECK_EQ(lane.lend(bytes + done, data.size() - done), 0);
      const std::size_t pushed = lane.push(bytes + done, data.size() - done);
      done += pushed;
      return done == data.size() ? Step::kDone : pushed > 0 ? Step::kMoved : Step::kStuck;
    });
  });
  munmap(memory, data.size());
}
