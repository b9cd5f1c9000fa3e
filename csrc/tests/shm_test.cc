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
#include "transport/fabric.h"

using namespace pycomm;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 60s;  // then a test gives up

// Polls until `step` says that it is done; sleeps while it says that nothing moved.
enum class Step { kMoved, kStuck, kDone };
template <class F>
void drive(Fabric& fabric, F step) {
  Waiter::Pause pause(fabric.waiter());
  const auto deadline = Clock::now() + kPatience;
  for (;;) {
    const Step what = step();
    if (what == Step::kDone) return;
    if (what == Step::kMoved) pause.reset();
    if (what == Step::kStuck && pause.idle(deadline) && Clock::now() > deadline)
      throw std::runtime_error("stuck");
  }
}

// Sizes around every border of the layout, and others up to 1 MiB with small ones more often.
std::size_t size_of_message(std::mt19937& random) {
  constexpr std::size_t borders[] = {0, 1, 24, 25, 4095, 4096, 4097, 131071, 131072, 131073, 524288};
  if (random() % 3 == 0) return borders[random() % std::size(borders)];
  return random() % ((std::size_t{1} << (random() % 21)) + 1);
}

// A stream of messages that both sides derive from (seed, index).
class Sender {
 public:
  Sender(Lane& lane, std::uint32_t seed, int messages)
      : lane_(lane), random_(seed), seed_(seed), left_(messages) {}

  Step step() {
    if (done_ == data_.size() && !begin_next()) return left_ == 0 && !waiting_ ? Step::kDone : Step::kStuck;
    if (done_ == data_.size()) return Step::kMoved;
    // In pieces of any size, as a forwarding step has them.
    const std::size_t most = pieces_() % 4 == 0 ? 1 + pieces_() % 100 : data_.size();
    const std::size_t pushed = lane_.push(data_.data() + done_, std::min(most, data_.size() - done_));
    done_ += pushed;
    CHECK(lane_.released());
    return pushed > 0 ? Step::kMoved : Step::kStuck;
  }

 private:
  bool begin_next() {
    if (!waiting_) {
      if (left_ == 0) return false;
      --left_;
      waiting_ = true;
      next_ = pattern(seed_ + sequence_, size_of_message(random_));
    }
    if (!lane_.begin({seed_, sequence_, next_.size()})) return false;
    waiting_ = false;
    ++sequence_;
    data_ = std::move(next_);
    done_ = 0;
    return true;
  }

  Lane& lane_;
  std::mt19937 random_, pieces_{7};
  std::uint32_t seed_;
  int left_;
  std::uint64_t sequence_ = 0;
  bool waiting_ = false;
  std::vector<std::byte> data_, next_;
  std::size_t done_ = 0;
};

class Receiver {
 public:
  Receiver(Lane& lane, std::uint32_t seed, int messages)
      : lane_(lane), random_(seed), seed_(seed), left_(messages) {}

  Step step() {
    if (left_ == 0 && got_.empty())
      return lane_.head() == nullptr ? Step::kDone : throw std::runtime_error("surplus");
    const Envelope* head = lane_.head();
    if (head == nullptr) return Step::kStuck;
    if (!open_) {
      expected_ = pattern(seed_ + sequence_, size_of_message(random_));
      CHECK(*head == Envelope{seed_, sequence_, expected_.size()});
      open_ = true;
    }
    if (expected_.empty()) {
      CHECK(lane_.peek().empty());
      lane_.finish();
      return end_message();
    }
    if (take() == 0) return Step::kStuck;
    return got_.size() == expected_.size() ? end_message() : Step::kMoved;
  }

 private:
  // Some bytes, in one of the three ways.
  std::size_t take() {
    const std::size_t before = got_.size(), left = expected_.size() - before;
    if (pieces_() % 2 == 0) {
      got_.resize(expected_.size());
      const std::size_t pulled = lane_.pull(got_.data() + before, pieces_() % 3 == 0 ? 1 + left / 3 : left);
      got_.resize(before + pulled);
      return pulled;
    }
    const auto seen = lane_.peek();
    const std::size_t taken = pieces_() % 2 == 0 ? seen.size() : (seen.size() + 1) / 2;
    got_.insert(got_.end(), seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(taken));
    lane_.pop(taken);
    return taken;
  }

  Step end_message() {
    CHECK(same(got_, expected_));
    got_.clear();
    open_ = false;
    ++sequence_;
    --left_;
    return Step::kMoved;
  }

  Lane& lane_;
  std::mt19937 random_, pieces_{11};
  std::uint32_t seed_;
  int left_;
  std::uint64_t sequence_ = 0;
  bool open_ = false;
  std::vector<std::byte> expected_, got_;
};

// Every rank to every other on all lanes at once.
void exchange_all(Fabric& fabric, int communicators, int channels, int messages) {
  std::vector<Sender> senders;
  std::vector<Receiver> receivers;
  for (int peer = 0; peer < fabric.size(); ++peer) {
    if (peer == fabric.rank()) continue;
    for (int c = 0; c < communicators; ++c) {
      for (int channel = 0; channel < channels; ++channel) {
        Lane& lane = fabric.endpoint(peer).lane(100 + c, static_cast<std::uint16_t>(channel));
        const auto seed = [&](int from, int to) {
          return std::uint32_t(((from * 64 + to) * 64 + c) * 64 + channel);
        };
        senders.emplace_back(lane, seed(fabric.rank(), peer), messages);
        receivers.emplace_back(lane, seed(peer, fabric.rank()), messages);
      }
    }
  }
  drive(fabric, [&] {
    bool moved = false, done = true;
    const auto add = [&](Step step) { moved |= step == Step::kMoved, done &= step == Step::kDone; };
    for (auto& sender : senders) add(sender.step());
    for (auto& receiver : receivers) add(receiver.step());
    return done ? Step::kDone : moved ? Step::kMoved : Step::kStuck;
  });
}

// One message of any size, blocking.
void send(Fabric& fabric, int peer, std::uint32_t communicator, const std::vector<std::byte>& data) {
  Lane& lane = fabric.endpoint(peer).lane(communicator, 0);
  drive(fabric, [&] { return lane.begin({1, 1, data.size()}) ? Step::kDone : Step::kStuck; });
  std::size_t done = 0;
  drive(fabric, [&] {
    const std::size_t pushed = lane.push(data.data() + done, data.size() - done);
    done += pushed;
    return done == data.size() ? Step::kDone : pushed > 0 ? Step::kMoved : Step::kStuck;
  });
}

std::vector<std::byte> receive(Fabric& fabric, int peer, std::uint32_t communicator) {
  Lane& lane = fabric.endpoint(peer).lane(communicator, 0);
  drive(fabric, [&] { return lane.head() ? Step::kDone : Step::kStuck; });
  std::vector<std::byte> data(lane.head()->bytes);
  if (data.empty()) lane.finish();
  std::size_t done = 0;
  drive(fabric, [&] {
    const std::size_t pulled = lane.pull(data.data() + done, data.size() - done);
    done += pulled;
    return done == data.size() ? Step::kDone : pulled > 0 ? Step::kMoved : Step::kStuck;
  });
  return data;
}

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
  CHECK_THROWS(fabrics[0]->add_tcp(1, -1), "already");
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
