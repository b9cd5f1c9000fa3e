// Two endpoints over several links: they share the traffic, and when some are lost nobody notices.
#include <fcntl.h>

#include <atomic>
#include <mutex>
#include <string>

#include "tests/tcp_traffic.h"
#include "transport/tcp/frame.h"

using namespace pycomm;

namespace {

std::vector<Pair> internet_pairs(int links, int bytes = 0) {
  std::vector<Pair> pairs;
  for (int i = 0; i < links; ++i) pairs.push_back(internet_pair(AF_INET, bytes));
  return pairs;
}

std::uint64_t sent_over_links(const Endpoint& endpoint) {
  std::uint64_t bytes = 0;
  for (const LinkState& link : endpoint.links()) bytes += link.sent_bytes;
  return bytes;
}

// A wire that can be slowed and blocked: a thread that passes on what comes at either end.
class Wire {
 public:
  Wire() {
    const Pair one = internet_pair(AF_INET, 1 << 16), two = internet_pair(AF_INET, 1 << 16);
    ends = {one.first, two.first};
    inner_ = {one.second, two.second};
    thread_ = std::thread([this] { run(); });
  }
  ~Wire() {
    over_ = true;
    thread_.join();
    close(inner_.first), close(inner_.second);
  }

  Pair ends;
  std::atomic<bool> blocked = false;
  std::atomic<std::chrono::microseconds> pause{0us};  // after each kPiece bytes
  static constexpr std::size_t kPiece = 8 << 10;

 private:
  void run() {
    while (!over_) {
      const bool moved = !blocked && (pass(inner_.first, inner_.second) | pass(inner_.second, inner_.first));
      if (!moved) rest(1ms);
    }
  }
  bool pass(int from, int to) {
    char piece[kPiece];
    const ssize_t got = recv(from, piece, sizeof piece, MSG_DONTWAIT);
    if (got <= 0) return false;
    for (ssize_t sent = 0; sent < got && !over_;) {
      const ssize_t more =
          send(to, piece + sent, static_cast<std::size_t>(got - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (more > 0) sent += more;
      if (more < 0 && errno != EAGAIN) return false;
      if (more < 0) rest(1ms);
    }
    std::this_thread::sleep_for(pause.load());
    return true;
  }

  Pair inner_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

// Cuts links at moments of its own choice, but never the last. For both sides' threads.
class Scissors {
 public:
  Scissors(int links, std::uint64_t seed) : whole_(static_cast<std::size_t>(links), true), random_(seed) {}
  // A moment of one side: mostly nothing happens.
  void moment(Endpoint& endpoint) {
    const std::lock_guard lock(mutex_);
    if (random_() % 100 != 0 || std::ranges::count(whole_, true) == 1) return;
    const std::size_t link = random_() % whole_.size();
    if (!whole_[link]) return;
    whole_[link] = false;
    endpoint.cut(link);
  }
  std::size_t cuts() const { return static_cast<std::size_t>(std::ranges::count(whole_, false)); }

 private:
  std::mutex mutex_;
  std::vector<bool> whole_;
  std::mt19937_64 random_;
};

std::size_t lose_links(std::uint64_t seed, int links, std::size_t largest, int bytes = 0) {
  auto [one, two] = endpoints(internet_pairs(links, bytes));
  Side a(*one), b(*two);
  add_traffic(a, b, static_cast<std::uint32_t>(seed), 4, 12, largest);
  Scissors scissors(links, seed);
  const auto moments = [&scissors](Side& side) {
    return [&] { return scissors.moment(side.endpoint), false; };
  };
  // The last acknowledgement may be lost with its link: whoever is done still drives, for the other.
  std::atomic<int> over = 0;
  const auto run = [&](Side& side) {
    side.run(moments(side));
    for (++over; over != 2;) side.endpoint.poll();
  };
  std::thread other([&] { run(b); });
  run(a);
  other.join();
  CHECK_EQ(one->counters().sent_bytes, two->counters().received_bytes);
  CHECK_EQ(two->counters().sent_bytes, one->counters().received_bytes);
  one->check(), two->check();
  return scissors.cuts();
}

std::size_t alive(const Endpoint& endpoint) {
  return static_cast<std::size_t>(
      std::ranges::count_if(endpoint.links(), [](const LinkState& link) { return link.lost.empty(); }));
}

// Polls both until nothing moves.
void settle(Endpoint& one, Endpoint& two) {
  for (int still = 0; still < 20; ++still) {
    if (one.poll() | two.poll()) still = 0;
    std::this_thread::sleep_for(100us);
  }
}

}  // namespace

TEST(all_links_share_the_traffic) {
  for (int links = 1; links <= 4; ++links) {
    auto [one, two] = endpoints(internet_pairs(links));
    Side a(*one), b(*two);
    add_traffic(a, b, 5, 6, 12, 4 << 20);
    std::thread other([&] { b.run(); });
    a.run();
    other.join();
    CHECK_EQ(one->counters().sent_bytes, two->counters().received_bytes);
    CHECK_EQ(two->counters().sent_messages, one->counters().received_messages);
    CHECK_EQ(sent_over_links(*one), one->counters().sent_bytes);
    CHECK_EQ(sent_over_links(*two), two->counters().sent_bytes);
    CHECK_EQ(one->descriptors().size(), links);
    for (const Endpoint* side : {one.get(), two.get()})
      for (const LinkState& link : side->links()) CHECK(link.sent_bytes > 0 && link.received_bytes > 0);
  }
}

TEST(many_small_messages_over_links) {
  auto [one, two] = endpoints({unix_pair(), internet_pair(AF_INET6), internet_pair(AF_INET, 4096)});
  Side a(*one), b(*two);
  add_traffic(a, b, 5, 3, 3000, 64);
  std::thread other([&] { b.run(); });
  a.run();
  other.join();
  CHECK_EQ(one->counters().sent_messages, two->counters().received_messages);
}

TEST(two_threads_drive_one_endpoint_of_links) {
  auto [one, two] = endpoints(internet_pairs(3));
  Side a1(*one), a2(*one), b1(*two), b2(*two);
  add_traffic(a1, b1, 1, 3, 10, 1 << 20);
  add_traffic(a2, b2, 2, 3, 10, 1 << 20);
  std::vector<std::thread> threads;
  Scissors scissors(3, 7);
  std::atomic<int> over = 0;
  for (Side* side : {&a1, &a2, &b1, &b2})
    threads.emplace_back([&, side] {
      side->run([&] { return scissors.moment(side->endpoint), false; });
      for (++over; over != 4;) side->endpoint.poll();
    });
  for (auto& thread : threads) thread.join();
}

TEST(links_that_are_lost_are_not_missed) {
  std::size_t cuts = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed)
    cuts += lose_links(seed, 2 + static_cast<int>(seed % 3), seed % 2 ? 3 << 20 : 100000,
                       seed % 4 == 0 ? 4096 : 0);
  CHECK(cuts >= 24);
}

TEST(with_the_last_link_the_peer_is_lost) {
  auto [one, two] = endpoints(internet_pairs(2));
  Lane& lane = one->lane(1, 1);
  std::vector<std::byte> data(1 << 19);
  CHECK(lane.begin({1, 1, data.size()}));
  CHECK_EQ(lane.push(data.data(), data.size()), data.size());
  settle(*one, *two);
  one->cut(1);
  settle(*one, *two);
  for (Endpoint* side : {one.get(), two.get()}) {
    side->check();
    CHECK_EQ(alive(*side), 1);
    CHECK_EQ(side->descriptors().size(), 1);
    CHECK(side->links()[1].lost.starts_with("closed its connection") ||
          side->links()[1].lost.starts_with("was given up"));
  }
  two->cut(0);
  rest();
  CHECK_THROWS(one->check(), "rank 1 closed its connection");
  CHECK_THROWS(one->check(), "the last of 2 links");
  CHECK_THROWS(lane.begin({1, 2, 1}), "the last of 2 links");
  CHECK_THROWS(two->check(), "rank 0 closed its connection");
  CHECK_THROWS(one->cut(2), "no link 2 of 2");
}

TEST(a_large_send_is_released_when_it_is_acknowledged) {
  auto [one, two] = endpoints(internet_pairs(2));
  Lane &out = one->lane(1, 1), &in = two->lane(1, 1);
  std::vector<std::byte> data(300000), taken(data.size());
  const std::uint64_t before = out.mark();
  CHECK(out.begin({1, 1, data.size()}));
  CHECK_EQ(out.push(data.data(), data.size()), data.size());
  const std::uint64_t mark = out.mark();
  CHECK(before < mark);
  for (int i = 0; i < 20; ++i, rest(1ms)) one->poll();
  CHECK(!out.released());
  CHECK(out.released_before(before));
  while (in.head() == nullptr) two->poll();
  for (std::size_t got = 0; got < taken.size();) got += in.pull(taken.data() + got, taken.size() - got);
  for (int i = 0; i < 20 && !out.released_before(mark); ++i, rest(1ms)) one->poll();
  two->acknowledge();  // what the end of a call does, if nothing else told the peer
  for (int i = 0; i < 2000 && !out.released_before(mark); ++i, rest(1ms)) one->poll();
  CHECK(out.released());

  CHECK(out.begin({1, 2, 4000}));
  CHECK_EQ(out.push(data.data(), 4000), 4000);
  CHECK(out.released());
}

TEST(memory_is_taken_back_from_a_failed_call) {
  for (const bool forget : {false, true}) {
    const std::vector<Pair> pairs = internet_pairs(2);
    auto [one, two] = endpoints(pairs);
    const Messages messages{9, {400000}};
    Lane& out = one->lane(1, 1);
    {
      std::vector<std::byte> data(400000);
      messages.fill(0, 0, data);
      CHECK(out.begin(messages.envelope(0)));
      CHECK_EQ(out.push(data.data(), data.size()), data.size());
      one->poll();
      CHECK(!out.released());
      forget ? one->forget(1) : out.recall();
      std::ranges::fill(data, std::byte{0xee});
    }
    one->cut(0);  // some of it has to be sent again, from memory that is gone
    Side b(*two);
    b.receivers.emplace_back(two->lane(1, 1), messages, Taking::kBoth);
    std::thread other([&] { b.run(); });
    const auto deadline = Clock::now() + 20s;
    while (two->counters().received_messages == 0 && Clock::now() < deadline) one->poll();
    other.join();
    while (alive(*one) == 2 && Clock::now() < deadline) one->poll();  // the peer may have been faster
    CHECK_EQ(alive(*one), 1);
  }
}

TEST(a_blocked_link_is_given_up_if_the_peer_is_heard_over_another) {
  TcpOptions options;
  options.link_timeout = 300ms;
  Wire wire;
  auto [one, two] = endpoints({internet_pair(AF_INET), wire.ends}, options);
  Side a(*one), b(*two);
  add_traffic(a, b, 3, 3, 12, 3 << 20);
  std::atomic<bool> over = false;
  std::thread other([&] {
    b.run();
    while (!over) b.endpoint.poll(), rest(1ms);
  });
  a.run([&, turns = 0]() mutable { return wire.blocked = ++turns > 30, false; });
  over = true;
  other.join();
  CHECK_EQ(alive(*one), 1);
  CHECK_EQ(alive(*two), 1);
  CHECK(one->links()[1].lost.starts_with("let nothing through") ||
        two->links()[1].lost.starts_with("let nothing through"));
}

// A single message is stuck, and nothing else is to be said: the peer must be asked over the other link.
TEST(a_blocked_link_is_found_without_other_traffic) {
  TcpOptions options;
  options.link_timeout = 300ms;
  for (const std::size_t at : {0, 1}) {
    Wire wire;
    std::vector<Pair> pairs{internet_pair(AF_INET), internet_pair(AF_INET)};
    pairs[at] = wire.ends;
    auto [one, two] = endpoints(pairs, options);
    wire.blocked = true;
    Side a(*one), b(*two);
    const Messages messages{5, {2000000}};
    a.senders.emplace_back(one->lane(1, 1), messages);
    b.receivers.emplace_back(two->lane(1, 1), messages, Taking::kPull);
    std::thread other([&] { b.run(); });
    a.run();
    other.join();
    CHECK(one->links()[at].lost.starts_with("let nothing through"));
    CHECK_EQ(alive(*one), 1);
  }
}

TEST(a_peer_that_is_silent_on_all_links_keeps_them) {
  TcpOptions options;
  options.link_timeout = 200ms;
  auto [one, two] = endpoints(internet_pairs(3, 4096), options);
  Side a(*one), b(*two);
  add_traffic(a, b, 3, 3, 8, 1 << 20);
  const auto start = Clock::now();
  a.run([&] { return Clock::now() - start > 1s; });  // the other does nothing meanwhile
  std::thread other([&] { b.run(); });
  a.run();
  other.join();
  CHECK_EQ(alive(*one), 3);
  CHECK_EQ(alive(*two), 3);
}

TEST(a_slow_link_gets_less) {
  Wire fast, slow;
  slow.pause = 2000us;
  fast.pause = 100us;
  auto [one, two] = endpoints({slow.ends, fast.ends});
  Side a(*one), b(*two);
  const Messages messages{5, {16 << 20}};
  a.senders.emplace_back(one->lane(1, 1), messages);
  b.receivers.emplace_back(two->lane(1, 1), messages, Taking::kPull);
  std::thread other([&] { b.run(); });
  a.run();
  other.join();
  const auto links = one->links();
  CHECK(links[0].sent_bytes < links[1].sent_bytes / 2);
  CHECK_EQ(alive(*one), 2);
}

TEST(data_before_a_goodbye_is_delivered_over_links) {
  auto [one, two] = endpoints(internet_pairs(3));
  Side b(*two);
  const Messages messages{3, {60000, 0, 13, 700000}};
  Sender sender(one->lane(1, 1), messages);
  while (sender.step()) continue;
  CHECK_EQ(sender.sent_messages(), 4);
  b.receivers.emplace_back(two->lane(1, 1), messages, Taking::kPull);
  one->lane(1, 1).recall();
  std::thread leaver([&] { one.reset(); });
  b.run();
  leaver.join();
  for (int i = 0; i < 100; ++i, rest(1ms)) two->poll();
  two->check();
  CHECK_THROWS(two->lane(1, 1).head(), "rank 0 said goodbye and closed its connection");
  CHECK(two->descriptors().empty());
}

TEST(a_fault_survives_a_lost_link) {
  auto [one, two] = endpoints(internet_pairs(2));
  one->post_fault({3, 12, 5, 1042, std::string(10000, 'x')});
  one->cut(0), two->cut(0);
  settle(*one, *two);
  CHECK(two->fault().has_value());
  CHECK_EQ(two->fault()->text.size(), tcp::kMaxFaultText);
}

TEST(sockets_for_links_are_taken_even_if_one_is_refused) {
  const Pair good = unix_pair();
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  CHECK_THROWS(make_tcp_endpoint(1, {good.first, ends[0]}), "as a TCP connection");
  CHECK_EQ(fcntl(ends[0], F_GETFD), -1);
  CHECK_EQ(fcntl(good.first, F_GETFD), -1);
  CHECK_THROWS(make_tcp_endpoint(1, {}), "takes 1 to 64 sockets, not 0");
  close(good.second), close(ends[1]);
}
