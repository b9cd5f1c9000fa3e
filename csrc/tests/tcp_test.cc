// Lanes of two endpoints: everything arrives, in order, once, and nobody waits for another.
#include <atomic>
#include <string>

#include "tests/tcp_traffic.h"
#include "transport/tcp/frame.h"

using namespace pycomm;

namespace {

Pair tiny_unix_pair() {
  const Pair fds = unix_pair();
  const int bytes = 4096;
  for (int fd : {fds.first, fds.second}) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  return fds;
}

void both_ways(Pair fds, int lanes, int count, std::size_t largest) {
  auto [one, two] = endpoints(fds);
  Side a(*one), b(*two);
  add_traffic(a, b, 5, lanes, count, largest);
  std::thread other([&] { b.run(); });
  a.run();
  other.join();
  CHECK_EQ(one->counters().sent_bytes, two->counters().received_bytes);
  CHECK_EQ(two->counters().sent_bytes, one->counters().received_bytes);
  CHECK_EQ(one->counters().sent_messages, two->counters().received_messages);
}

}  // namespace

TEST(both_ways_over_a_socketpair) { both_ways(unix_pair(), 3, 12, 4 << 20); }
TEST(both_ways_over_ipv4) { both_ways(internet_pair(AF_INET), 6, 12, 4 << 20); }
TEST(both_ways_over_ipv6) { both_ways(internet_pair(AF_INET6), 3, 12, 4 << 20); }
TEST(both_ways_with_tiny_buffers) { both_ways(internet_pair(AF_INET, 4096), 4, 12, 100000); }
TEST(both_ways_with_tiny_buffers_over_a_socketpair) { both_ways(tiny_unix_pair(), 4, 12, 100000); }
TEST(many_small_messages) { both_ways(internet_pair(AF_INET), 3, 5000, 64); }

TEST(a_lane_that_is_not_read_holds_up_no_other) {
  for (const bool tiny : {false, true}) {
    auto [one, two] = endpoints(internet_pair(AF_INET, tiny ? 4096 : 0));
    Side a(*one), b(*two), stuck(*two);
    const Messages messages{77, {1200000, 5, 0, 100000}};
    add_traffic(a, b, 5, tiny ? 3 : 8, 8, tiny ? 100000 : 1 << 20);
    a.senders.emplace_front(one->lane(5, 100), messages);
    stuck.receivers.emplace_back(two->lane(5, 100), messages, Taking::kBoth);
    std::atomic<bool> over = false;
    std::thread other([&] {
      b.run();
      over = true;
      stuck.run();
    });
    a.run([&] { return over.load(); });
    CHECK_EQ(a.senders.front().sent_messages(), 0);
    a.run();
    other.join();
  }
}

TEST(two_threads_drive_one_endpoint) {
  auto [one, two] = endpoints(internet_pair(AF_INET));
  Side a1(*one), a2(*one), b1(*two), b2(*two);
  add_traffic(a1, b1, 1, 3, 20, 1 << 20);
  add_traffic(a2, b2, 2, 3, 20, 1 << 20);
  std::vector<std::thread> threads;
  for (Side* side : {&a1, &a2, &b1, &b2}) threads.emplace_back([side] { side->run(); });
  for (auto& thread : threads) thread.join();
  CHECK(a1.done() && a2.done() && b1.done() && b2.done());
}

TEST(credit_bounds_what_is_sent) {
  auto [one, two] = endpoints(internet_pair(AF_INET));
  Lane& lane = one->lane(1, 1);
  std::vector<std::byte> data(8 << 20);
  CHECK(lane.begin({1, 1, data.size()}));
  CHECK_THROWS(lane.begin({1, 2, 0}), "not complete");
  CHECK_THROWS(lane.push(data.data(), data.size() + 1), "more bytes");
  std::size_t sent = 0;
  for (int i = 0; i < 200; ++i, two->poll()) sent += lane.push(data.data() + sent, data.size() - sent);
  CHECK_EQ(sent, tcp::kWindow - tcp::kMessageCharge);
  CHECK(lane.released());
  CHECK(two->lane(1, 1).head() != nullptr);

  Lane& empties = one->lane(1, 2);
  std::size_t begun = 0;
  for (int idle = 0; idle < 1000; two->poll()) empties.begin({1, begun, 0}) ? void(++begun) : void(++idle);
  CHECK_EQ(begun, tcp::kWindow / tcp::kMessageCharge);
  Lane& in = two->lane(1, 2);
  for (std::size_t i = 0; i < begun; ++i) {
    CHECK(in.head() != nullptr && in.head()->sequence == i);
    in.finish();
  }
  CHECK(in.head() == nullptr);
  one->poll();
  CHECK(empties.begin({1, begun, 0}));
}

TEST(a_full_socket_is_waited_for) {
  const Pair fds = internet_pair(AF_INET, 4096);
  auto endpoint = make_tcp_endpoint(1, {fds.first});
  std::vector<std::byte> data(1 << 20);
  Lane& lane = endpoint->lane(1, 1);
  CHECK(lane.begin({1, 1, data.size()}));
  std::size_t sent = 0;
  for (int i = 0; i < 100; ++i) sent += lane.push(data.data(), 100000);
  CHECK(sent < 500000);
  endpoint->poll();
  CHECK(endpoint->descriptors().front().write);
  CHECK(!lane.released());
  std::size_t drained = 0;
  std::vector<char> sink(1 << 16);
  for (int i = 0; i < 1000 && !lane.released(); ++i, endpoint->poll()) {
    rest(1ms);
    drained += std::max<ssize_t>(0, recv(fds.second, sink.data(), sink.size(), MSG_DONTWAIT));
  }
  CHECK(lane.released());
  CHECK(drained > 0);
  endpoint->poll();
  CHECK(!endpoint->descriptors().front().write);
  close(fds.second);
}

TEST(frames_wait_for_a_lane_that_is_not_there_yet) {
  auto [one, two] = endpoints(unix_pair());
  const std::string text = "early";
  Lane& lane = one->lane(9, 3);
  CHECK(lane.begin({1, 2, text.size()}));
  CHECK_EQ(lane.push(reinterpret_cast<const std::byte*>(text.data()), text.size()), text.size());
  CHECK(two->poll());
  CHECK(!two->poll());
  const auto seen = (CHECK(*two->lane(9, 3).head() == Envelope{1, 2, 5}), two->lane(9, 3).peek());
  CHECK_EQ(std::string(reinterpret_cast<const char*>(seen.data()), seen.size()), text);
}

TEST(what_comes_for_a_closed_communicator_is_dropped) {
  auto [one, two] = endpoints(internet_pair(AF_INET));
  Side a(*one), b(*two);
  add_traffic(a, b, 1, 2, 5, 100000);
  a.senders.emplace_back(one->lane(2, 0), Messages{1, {100, 5 << 20, 0, 7}});
  a.senders.emplace_back(one->lane(2, 1), Messages{2, {5 << 20}});
  Lane& lane = two->lane(2, 0);
  const auto ready = [&] { return lane.head() != nullptr && lane.peek().size() == 100; };
  while (!ready()) a.senders[2].step(), two->poll();
  two->forget(2);
  CHECK_THROWS(two->lane(2, 0), "communicator 2 was closed");
  std::atomic<bool> over = false;
  std::thread other([&] {
    b.run();
    while (!over) two->poll();
  });
  a.run();
  over = true;
  other.join();
}

TEST(leaving_a_peer_that_does_not_read_takes_a_moment) {
  const Pair fds = internet_pair(AF_INET, 4096);
  auto endpoint = make_tcp_endpoint(1, {fds.first});
  std::vector<std::byte> data(1 << 20);
  CHECK(endpoint->lane(1, 1).begin({1, 1, data.size()}));
  while (endpoint->lane(1, 1).push(data.data(), 100000) != 0) continue;
  const auto start = Clock::now();
  endpoint.reset();
  CHECK(Clock::now() - start < 3s);
  close(fds.second);
}

TEST(faults_are_told) {
  auto [one, two] = endpoints(unix_pair());
  CHECK(!two->fault());
  one->post_fault({3, 12, 5, 1042, "rank 12 died"});
  one->post_fault({4, 13, 6, 1043, std::string(100000, 'x')});
  two->poll();
  const auto fault = two->fault();
  CHECK(fault.has_value());
  CHECK_EQ(fault->kind, 3);
  CHECK_EQ(fault->culprit, 12);
  CHECK_EQ(fault->communicator, 5);
  CHECK_EQ(fault->sequence, 1042);
  CHECK_EQ(fault->text, "rank 12 died");
  CHECK(!one->fault());
}

TEST(data_before_a_goodbye_is_delivered) {
  auto [one, two] = endpoints(internet_pair(AF_INET));
  Side a(*one), b(*two);
  const Messages messages{3, {60000, 0, 13}};
  a.senders.emplace_back(one->lane(1, 1), messages);
  b.receivers.emplace_back(two->lane(1, 1), messages, Taking::kPull);
  Sender unread(two->lane(1, 2), messages);  // must not make the close a reset that loses what is on its way
  while (unread.step()) continue;
  a.run();
  std::thread leaver([&] { one.reset(); });
  rest();
  b.run();
  leaver.join();
  while (two->poll()) continue;
  two->check();  // who does not need the peer is not disturbed
  CHECK_THROWS(two->lane(1, 1).head(), "rank 0 said goodbye and closed its connection");
  CHECK_THROWS(two->lane(1, 1).begin({}), "rank 0 said goodbye");
  CHECK(two->lane(1, 1).released());
}
