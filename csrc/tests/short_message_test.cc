// Short messages: those that travel in the line of their stamp, and their neighbours in size.
#include <chrono>
#include <random>
#include <vector>

#include "check.h"
#include "pattern.h"
#include "ranks.h"

using namespace pycomm;
using namespace std::chrono_literals;

namespace {

std::vector<std::byte> received(Lane& lane, const Envelope& envelope) {
  std::vector<std::byte> data(envelope.bytes);
  if (envelope.bytes == 0) {
    lane.finish();
  } else {
    CHECK_EQ(lane.pull(data.data(), data.size()), data.size());
  }
  return data;
}

// The long way, which is always there.
void send_long_way(Lane& lane, const Envelope& envelope, const std::vector<std::byte>& data) {
  CHECK(lane.begin(envelope));
  CHECK_EQ(lane.push(data.data(), data.size()), data.size());
}

// A round trip of short messages; every wait sleeps, and for so long that a lost wake-up shows.
void ping_pong(Fabric& fabric, int rounds) {
  fabric.waiter().set_limits({0ns, 0ns, 20s});
  Lane& lane = fabric.endpoint(1 - fabric.rank()).lane(1, 0);
  const std::vector<std::byte> ball(8);
  auto slowest = Clock::duration::zero();
  for (int i = 0; i < rounds; ++i) {
    const auto start = Clock::now();
    const Envelope envelope{7, static_cast<std::uint64_t>(i), ball.size()};
    const auto hit = [&] {
      if (!lane.send(envelope, ball.data())) send_long_way(lane, envelope, ball);
      lane.ring();
    };
    if (fabric.rank() == 0) hit();
    Waiter::Pause pause(fabric.waiter());
    while (lane.head() == nullptr) pause.idle(Clock::now() + 20s);
    CHECK(*lane.head() == envelope);
    lane.pop(lane.peek().size());
    if (fabric.rank() == 1) hit();
    slowest = std::max(slowest, Clock::now() - start);
  }
  CHECK(slowest < 10s);
}

}  // namespace

TEST(envelope_and_bytes_arrive_whichever_way_and_however_far_the_sequences_are_apart) {
  auto fabrics = Fabric::in_memory(2);
  Lane& out = fabrics[0]->endpoint(1).lane(5, 0);
  Lane& in = fabrics[1]->endpoint(0).lane(5, 0);
  std::mt19937_64 random(3);
  std::uint64_t sequence = 0;
  int at_once = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t steps[] = {0,     1,         255,        kNear - 1,
                                   kNear, kNear + 1, 1ull << 40, ~0ull};  // the last: back
    sequence += steps[random() % std::size(steps)];
    const std::size_t bytes = i % 5 == 0 ? random() % (kSmallBytes + 1) : random() % (2 * kInlineBytes);
    const auto data = pattern(static_cast<std::uint32_t>(i), bytes);
    const Envelope envelope{random(), sequence, bytes};
    if (i % 3 == 0 || !out.send(envelope, data.data())) {
      send_long_way(out, envelope, data);
    } else {
      ++at_once;
    }
    CHECK(in.head() != nullptr && *in.head() == envelope);
    CHECK(received(in, envelope) == data);
    CHECK(in.head() == nullptr);
  }
  CHECK(at_once > 3000);
  CHECK_EQ(fabrics[0]->counters(1).sent_messages, 5000u);
  CHECK_EQ(fabrics[0]->counters(1).sent_bytes, fabrics[1]->counters(0).received_bytes);
}

TEST(what_is_left_of_a_long_message_may_be_short) {
  auto fabrics = Fabric::in_memory(2);
  Lane& out = fabrics[0]->endpoint(1).lane(5, 0);
  Lane& in = fabrics[1]->endpoint(0).lane(5, 0);
  for (std::size_t left = 0; left < 100; ++left) {
    const auto data = pattern(9, kBigBytes + left);
    const Envelope envelope{1, left << 20, data.size()};
    send_long_way(out, envelope, data);
    CHECK(*in.head() == envelope);
    CHECK(received(in, envelope) == data);
  }
}

TEST(no_more_are_sent_than_there_are_slots) {
  auto fabrics = Fabric::in_memory(2);
  Lane& out = fabrics[0]->endpoint(1).lane(5, 0);
  Lane& in = fabrics[1]->endpoint(0).lane(5, 0);
  const auto data = pattern(1, 8);
  send_long_way(out, {1, 1, 8}, data);
  std::uint64_t sent = 1, taken = 0;
  for (int round = 0; round < 100; ++round) {
    while (out.send({1, sent + 1, 8}, data.data())) ++sent;
    CHECK(!out.send({1, sent + 1, kSmallBytes + 1}, data.data()));
    CHECK(sent - taken <= kSlots);
    for (; in.head() != nullptr; ++taken) {
      CHECK_EQ(in.head()->sequence, taken + 1);
      CHECK(received(in, *in.head()) == data);
    }
    CHECK_EQ(sent, taken);
  }
}

TEST(asleep_ranks_are_woken_by_a_ring_between_processes) {
  ranks::as_processes(2, [](Fabric& fabric) { ping_pong(fabric, 30'000); });
}

TEST(asleep_ranks_are_woken_by_a_ring_between_threads) {
  ranks::as_threads(2, [](Fabric& fabric) { ping_pong(fabric, 10'000); });
}
