// Shared-memory lanes: what is sent is what arrives, in order, whatever the sizes, the pieces and the pauses.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
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

std::uint32_t lanes_made(Fabric& fabric) { return fabric.segment().control().directory.lanes.load(); }

// Every round trip sleeps; the naps are so long that a lost wake-up shows.
void ping_pong(Fabric& fabric, int rounds) {
  fabric.waiter().set_limits({0ns, 0ns, 20s});
  const std::vector<std::byte> ball(8);
  const int other = 1 - fabric.rank();
  auto slowest = Clock::duration::zero();
  for (int i = 0; i < rounds; ++i) {
    const auto start = Clock::now();
    if (fabric.rank() == 0) send(fabric, other, 1, ball);
    receive(fabric, other, 1);
    if (fabric.rank() == 1) send(fabric, other, 1, ball);
    slowest = std::max(slowest, Clock::now() - start);
  }
  CHECK(slowest < 10s);
}

// A communicator a round, as split and close do it.
void split_and_close(Fabric& fabric, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const auto communicator = static_cast<std::uint32_t>(1000 + round);
    for (int shift = 1; shift < fabric.size(); ++shift) {
      const int to = (fabric.rank() + shift) % fabric.size();
      const int from = (fabric.rank() + fabric.size() - shift) % fabric.size();
      const auto bytes = static_cast<std::size_t>(round % 50);
      send(fabric, to, communicator,
           pattern(communicator + static_cast<std::uint32_t>(fabric.rank()), bytes));
      CHECK(same(receive(fabric, from, communicator),
                 pattern(communicator + static_cast<std::uint32_t>(from), bytes)));
    }
    fabric.forget(communicator);
  }
}

}  // namespace

TEST(all_lanes_at_once_between_threads) {
  ranks::as_threads(3, [](Fabric& fabric) { exchange_all(fabric, 2, 3, 25); });
}

TEST(all_lanes_at_once_between_processes) {
  ranks::as_processes(3, [](Fabric& fabric) { exchange_all(fabric, 2, 3, 25); });
}

TEST(a_long_stream_between_processes) {
  ranks::as_processes(2, [](Fabric& fabric) { exchange_all(fabric, 1, 1, 500); });
}

TEST(asleep_ranks_are_woken_by_data_between_threads) {
  ranks::as_threads(2, [](Fabric& fabric) { ping_pong(fabric, 20'000); });
}

TEST(asleep_ranks_are_woken_by_data_between_processes) {
  ranks::as_processes(2, [](Fabric& fabric) { ping_pong(fabric, 100'000); });
}

TEST(asleep_senders_are_woken_by_credit) {
  ranks::as_processes(2, [](Fabric& fabric) {
    fabric.waiter().set_limits({0ns, 0ns, 20s});
    for (std::size_t bytes : {8, 3000, 100'000, 1 << 20}) {
      const auto data = pattern(bytes, bytes);
      auto slowest = Clock::duration::zero();
      for (int i = 0; i < 60; ++i) {
        const auto start = Clock::now();
        if (fabric.rank() == 0) send(fabric, 1, 1, data);
        if (fabric.rank() == 1) {
          if (i % 20 == 0) std::this_thread::sleep_for(2ms);  // the ring fills, the sender falls asleep
          CHECK(same(receive(fabric, 0, 1), data));
        }
        slowest = std::max(slowest, Clock::now() - start);
      }
      CHECK(slowest < 10s);
    }
  });
}

TEST(a_slow_receiver_holds_the_sender_up) {
  auto fabrics = Fabric::in_memory(2);
  Lane& out = fabrics[0]->endpoint(1).lane(5, 0);
  Lane& in = fabrics[1]->endpoint(0).lane(5, 0);
  const auto data = pattern(1, 4 << 20);
  CHECK(out.begin({1, 2, data.size()}));
  const std::size_t first = out.push(data.data(), data.size());
  CHECK_EQ(first, kBigSlots * kBigBytes);
  CHECK_EQ(out.push(data.data() + first, data.size() - first), 0);
  CHECK_EQ(in.peek().size(), 0);  // no message is looked at before head
  CHECK_EQ(in.head()->bytes, data.size());
  CHECK_EQ(in.peek().size(), kBigBytes);
  in.pop(kBigBytes);
  CHECK_EQ(out.push(data.data() + first, data.size() - first), kBigBytes);
}

TEST(crumbs_are_collected_and_elements_stay_whole) {
  auto fabrics = Fabric::in_memory(2);
  Lane& out = fabrics[0]->endpoint(1).lane(5, 0);
  Lane& in = fabrics[1]->endpoint(0).lane(5, 0);
  const auto data = pattern(1, 100'003);
  CHECK(out.begin({1, 2, data.size()}));
  std::vector<std::byte> got;
  for (std::size_t done = 0, piece = 1; done < data.size(); piece = piece % 23 + 1) {
    done += out.push(data.data() + done, std::min(piece, data.size() - done));
    while (in.head() && !in.peek().empty()) {
      const auto seen = in.peek();
      CHECK(seen.size() % 8 == 0 || got.size() + seen.size() == data.size());
      CHECK(reinterpret_cast<std::uintptr_t>(seen.data()) % 8 == 0);
      got.insert(got.end(), seen.begin(), seen.end());
      in.pop(seen.size());
    }
  }
  CHECK(same(got, data));
  CHECK(in.head() == nullptr);
}

TEST(messages_without_bytes) {
  auto fabrics = Fabric::in_memory(2);
  Lane& out = fabrics[0]->endpoint(1).lane(5, 0);
  Lane& in = fabrics[1]->endpoint(0).lane(5, 0);
  CHECK(in.head() == nullptr);
  std::uint64_t begun = 0, seen = 0;
  for (int round = 0; round < 100; ++round) {
    while (out.begin({3, begun, 0})) ++begun;
    CHECK(begun - seen <= kSlots && begun - seen > kSlots / 2);
    CHECK_EQ(out.push(nullptr, 0), 0);
    while (in.head()) {
      CHECK(*in.head() == Envelope{3, seen, 0});
      CHECK_EQ(in.pull(nullptr, 0), 0);
      in.finish();
      ++seen;
    }
    CHECK_EQ(seen, begun);
  }
  CHECK_THROWS(in.finish(), "finish");
  CHECK_EQ(fabrics[1]->counters(0).received_messages, seen);
}

TEST(misuse_is_refused) {
  auto fabrics = Fabric::in_memory(2);
  Lane& out = fabrics[0]->endpoint(1).lane(5, 0);
  CHECK(out.begin({1, 1, 16}));
  CHECK_THROWS(out.begin({1, 2, 16}), "not complete");
  CHECK_THROWS(fabrics[0]->endpoint(0), "no connection");
  int sockets[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const Descriptor other(sockets[1]);
  CHECK_THROWS(fabrics[0]->add_tcp(1, {sockets[0]}), "already");
}

TEST(closed_communicators_leave_their_lanes_to_the_next) {
  const auto body = [](Fabric& fabric) {
    split_and_close(fabric, 1000);
    CHECK(lanes_made(fabric) <= 4 * static_cast<std::uint32_t>(fabric.size()));
  };
  ranks::as_threads(3, body);
  ranks::as_processes(3, body);
}

TEST(a_hundred_thousand_messages_use_one_lane) {
  ranks::as_processes(2, [](Fabric& fabric) {
    const std::vector<std::byte> data(40);
    for (int i = 0; i < 100'000; ++i) {
      if (fabric.rank() == 0) send(fabric, 1, 1, data);
      if (fabric.rank() == 1) CHECK_EQ(receive(fabric, 0, 1).size(), 40);
    }
    CHECK(lanes_made(fabric) <= 1);
    const Counters counters = fabric.counters(1 - fabric.rank());
    CHECK_EQ(counters.sent_messages, fabric.rank() == 0 ? 100'000 : 0);
    CHECK_EQ(counters.received_bytes, fabric.rank() == 0 ? 0 : 4'000'000);
  });
}

TEST(a_lane_is_not_given_away_before_its_receiver_closed_it) {
  auto fabrics = Fabric::in_memory(2);
  Endpoint& sender = fabrics[0]->endpoint(1);
  Endpoint& receiver = fabrics[1]->endpoint(0);
  const auto data = pattern(3, 100);
  const auto send_on = [&](std::uint32_t communicator) {
    CHECK(sender.lane(communicator, 0).begin({communicator, 1, data.size()}));
    CHECK_EQ(sender.lane(communicator, 0).push(data.data(), data.size()), data.size());
    sender.forget(communicator);
  };
  send_on(1);
  send_on(2);
  CHECK_EQ(lanes_made(*fabrics[0]), 2);
  CHECK_EQ(receiver.lane(1, 0).head()->fingerprint,
           1);         // sent before the sender forgot it, so it still comes
  receiver.forget(1);  // unread
  send_on(3);          // in the block of 1
  CHECK_EQ(lanes_made(*fabrics[0]), 2);
  CHECK(receiver.lane(1, 0).head() == nullptr);
  CHECK_EQ(receiver.lane(2, 0).head()->fingerprint, 2);
  CHECK_EQ(receiver.lane(3, 0).head()->fingerprint, 3);
}
