#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/check.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/frame.h"

using namespace pycomm;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Pair = std::pair<int, int>;

namespace {

// -- Connected sockets of every kind.

Pair unix_pair() {
  int fds[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  return {fds[0], fds[1]};
}

// `bytes` of socket buffers, or what the kernel chooses if 0.
Pair internet_pair(int family, int bytes = 0) {
  const int listener = socket(family, SOCK_STREAM, 0), client = socket(family, SOCK_STREAM, 0);
  if (bytes != 0)
    for (int fd : {listener, client})
      for (int option : {SO_SNDBUF, SO_RCVBUF}) setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof bytes);
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  sockaddr_in6 v6{.sin6_family = AF_INET6,
                  .sin6_port = 0,
                  .sin6_flowinfo = 0,
                  .sin6_addr = in6addr_loopback,
                  .sin6_scope_id = 0};
  sockaddr* address = family == AF_INET ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6);
  socklen_t size = family == AF_INET ? sizeof v4 : sizeof v6;
  CHECK_EQ(bind(listener, address, size), 0);
  CHECK_EQ(listen(listener, 1), 0);
  CHECK_EQ(getsockname(listener, address, &size), 0);
  CHECK_EQ(connect(client, address, size), 0);
  const int server = accept(listener, nullptr, nullptr);
  CHECK(server >= 0);
  close(listener);
  return {client, server};
}

Pair tiny_unix_pair() {
  const Pair fds = unix_pair();
  const int bytes = 4096;
  for (int fd : {fds.first, fds.second}) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  return fds;
}

std::pair<std::unique_ptr<Endpoint>, std::unique_ptr<Endpoint>> endpoints(Pair fds) {
  return {make_tcp_endpoint(1, fds.first), make_tcp_endpoint(0, fds.second)};
}

// An endpoint for rank 7, and its peer's bare socket.
struct Bare {
  Bare() {
    const Pair fds = internet_pair(AF_INET);
    endpoint = make_tcp_endpoint(7, fds.first);
    fd = fds.second;
  }
  ~Bare() { hang_up(); }
  void hang_up() {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  void write(const void* data, std::size_t bytes) { CHECK_EQ(::send(fd, data, bytes, MSG_NOSIGNAL), bytes); }
  void write(const tcp::FrameHeader& header, const std::string& payload = "") {
    write(&header, sizeof header);
    write(payload.data(), payload.size());
  }

  std::unique_ptr<Endpoint> endpoint;
  int fd;
};

tcp::FrameHeader data_header(const std::string& payload, std::uint32_t communicator = 1,
                             std::uint16_t lane = 2) {
  tcp::FrameHeader header;
  header.communicator = communicator;
  header.lane = lane;
  header.sequence = 11;
  header.fingerprint = 12;
  header.message_bytes = header.length = static_cast<std::uint32_t>(payload.size());
  return header;
}

void rest(std::chrono::milliseconds time = 20ms) { std::this_thread::sleep_for(time); }

// -- Messages whose every byte can be foretold.

struct Messages {
  std::uint64_t seed;
  std::vector<std::size_t> sizes;

  Envelope envelope(std::size_t i) const { return {seed * 31 + i, i, sizes[i]}; }
  // The byte at `offset` of message i.
  std::byte at(std::size_t i, std::uint64_t offset) const {
    std::uint64_t x = (seed << 40) ^ (i << 28) ^ (offset >> 3);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return static_cast<std::byte>(x >> 8 * (offset % 8));
  }
};

Messages random_messages(std::uint64_t seed, int count, std::size_t largest) {
  std::mt19937_64 random(seed);
  Messages messages{seed, {}};
  for (int i = 0; i < count; ++i) {
    const int kind = static_cast<int>(random() % 8);
    const std::size_t limit = kind == 0  ? 0
                              : kind < 5 ? 64
                              : kind < 7 ? std::min<std::size_t>(20000, largest)
                                         : largest;
    messages.sizes.push_back(random() % (limit + 1));
  }
  if (!messages.sizes.empty()) messages.sizes[random() % messages.sizes.size()] = largest;
  return messages;
}

// Sends, a step at a time. What has been pushed and accepted is overwritten at once.
class Sender {
 public:
  Sender(Lane& lane, Messages messages)
      : lane_(&lane), messages_(std::move(messages)), random_(messages_.seed) {}
  bool done() { return at_ == messages_.sizes.size() && lane_->released(); }
  bool step() {
    if (at_ == messages_.sizes.size()) return false;
    const std::size_t size = messages_.sizes[at_];
    if (!begun_) {
      if (!lane_->begin(messages_.envelope(at_))) return false;
      begun_ = size != 0;
      offset_ = 0;
      if (size == 0) ++at_;
      return true;
    }
    const std::size_t wanted =
        std::min<std::size_t>(size - offset_, 1 + random_() % (random_() % 2 ? 100 : 300000));
    scratch_.resize(wanted);
    for (std::size_t i = 0; i < wanted; ++i) scratch_[i] = messages_.at(at_, offset_ + i);
    const std::size_t accepted = lane_->push(scratch_.data(), wanted);
    std::fill(scratch_.begin(), scratch_.end(), std::byte{0xee});
    CHECK(accepted <= wanted);
    offset_ += accepted;
    if (offset_ == size) ++at_, begun_ = false;
    return accepted != 0;
  }
  std::size_t sent_messages() const { return at_; }

 private:
  Lane* lane_;
  Messages messages_;
  std::mt19937_64 random_;
  std::vector<std::byte> scratch_;
  std::size_t at_ = 0, offset_ = 0;
  bool begun_ = false;
};

enum class Taking { kPull, kPeek, kBoth };

// Receives and compares, a step at a time.
class Receiver {
 public:
  Receiver(Lane& lane, Messages messages, Taking taking)
      : lane_(&lane), messages_(std::move(messages)), taking_(taking), random_(messages_.seed + 1) {}
  bool done() const { return at_ == messages_.sizes.size(); }
  bool step() {
    if (done()) return false;
    const Envelope* head = lane_->head();
    if (head == nullptr) return false;
    CHECK(*head == messages_.envelope(at_));
    if (head->bytes == 0) {
      lane_->finish();
      return next();
    }
    const bool peeking = taking_ == Taking::kPeek || (taking_ == Taking::kBoth && random_() % 2);
    const std::size_t got = peeking ? peek() : pull();
    offset_ += got;
    if (offset_ == messages_.sizes[at_]) return next();
    return got != 0;
  }

 private:
  bool next() {
    ++at_;
    offset_ = 0;
    return true;
  }
  std::size_t peek() {
    const auto seen = lane_->peek();
    const bool to_end = offset_ + seen.size() == messages_.sizes[at_];
    if (!seen.empty()) CHECK_EQ(reinterpret_cast<std::uintptr_t>(seen.data()) % 8, offset_ % 8);
    if (!seen.empty() && !to_end) CHECK_EQ((offset_ + seen.size()) % 8, 0);
    compare(seen.data(), seen.size());
    std::size_t some = seen.size();
    if (some > 8 && random_() % 2) some = random_() % (some / 8) * 8 + (8 - offset_ % 8) % 8;
    lane_->pop(some);
    return some;
  }
  std::size_t pull() {
    scratch_.resize(1 + random_() % (random_() % 2 ? 100 : 300000));
    const std::size_t got = lane_->pull(scratch_.data(), scratch_.size());
    CHECK(got <= scratch_.size());
    compare(scratch_.data(), got);
    return got;
  }
  void compare(const std::byte* data, std::size_t bytes) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < bytes; ++i) wrong += data[i] != messages_.at(at_, offset_ + i);
    CHECK_EQ(wrong, 0);
  }

  Lane* lane_;
  Messages messages_;
  Taking taking_;
  std::mt19937_64 random_;
  std::vector<std::byte> scratch_;
  std::size_t at_ = 0, offset_ = 0;
};

// One rank's side: steps everything until it is done, or `until` says so.
struct Side {
  explicit Side(Endpoint& endpoint) : endpoint(endpoint) {}
  void run(const std::function<bool()>& until = [] { return false; }) {
    const auto deadline = Clock::now() + 60s;
    while (!done() && !until()) {
      bool moved = endpoint.poll();
      for (Sender& sender : senders) moved |= sender.step();
      for (Receiver& receiver : receivers) moved |= receiver.step();
      if (!moved) std::this_thread::yield();
      if (Clock::now() > deadline) return check::fail(__FILE__, __LINE__, "nothing moved for a long time");
    }
  }
  bool done() {
    return std::ranges::all_of(senders, [](Sender& s) { return s.done(); }) &&
           std::ranges::all_of(receivers, [](Receiver& r) { return r.done(); });
  }

  Endpoint& endpoint;
  std::deque<Sender> senders;
  std::deque<Receiver> receivers;
};

// `lanes` lanes of one communicator, both ways at once.
void add_traffic(Side& a, Side& b, std::uint32_t communicator, int lanes, int count, std::size_t largest) {
  for (std::uint16_t lane = 0; lane < lanes; ++lane) {
    const auto taking = static_cast<Taking>(lane % 3);
    const std::uint64_t seed = communicator * 1000 + lane * 2;
    const Messages there = random_messages(seed, count, largest),
                   back = random_messages(seed + 1, count, largest);
    a.senders.emplace_back(a.endpoint.lane(communicator, lane), there);
    b.receivers.emplace_back(b.endpoint.lane(communicator, lane), there, taking);
    b.senders.emplace_back(b.endpoint.lane(communicator, lane), back);
    a.receivers.emplace_back(a.endpoint.lane(communicator, lane), back, taking);
  }
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
  auto endpoint = make_tcp_endpoint(1, fds.first);
  std::vector<std::byte> data(1 << 20);
  Lane& lane = endpoint->lane(1, 1);
  CHECK(lane.begin({1, 1, data.size()}));
  std::size_t sent = 0;
  for (int i = 0; i < 100; ++i) sent += lane.push(data.data(), 100000);
  CHECK(sent < 500000);
  endpoint->poll();
  CHECK(endpoint->wants_write());
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
  CHECK(!endpoint->wants_write());
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

TEST(data_before_an_end_is_delivered) {
  for (const bool reset : {false, true}) {
    Bare bare;
    Lane& lane = bare.endpoint->lane(1, 2);
    const std::string text(1000, 'a');
    bare.write(data_header(text), text);
    if (reset) {  // unread input at its end makes the peer's close a reset
      CHECK(lane.begin({1, 1, 0}));
      rest();
    }
    bare.hang_up();
    rest();
    CHECK(bare.endpoint->poll());
    CHECK(lane.head() != nullptr);
    bare.endpoint->poll();
    CHECK_THROWS(bare.endpoint->check(), "rank 7 closed its connection");
    CHECK_THROWS(lane.begin({1, 2, 0}), "rank 7 closed its connection");
    CHECK_EQ(lane.peek().size(), 1000);
    lane.pop(1000);
    CHECK_THROWS(lane.head(),
                 reset ? "closed its connection (Connection reset by peer)" : "closed its connection");
    CHECK_THROWS(bare.endpoint->poll(), "rank 7 closed its connection");
  }
}

TEST(an_end_inside_a_message_is_an_error_behind_its_bytes) {
  Bare bare;
  Lane& lane = bare.endpoint->lane(1, 2);
  auto header = data_header(std::string(100, 'a'));
  bare.write(header, std::string(13, 'a'));
  bare.hang_up();
  rest();
  bare.endpoint->poll();
  CHECK_EQ(lane.peek().size(), 8);
  std::byte taken[20];
  CHECK_EQ(lane.pull(taken, sizeof taken), 13);
  CHECK_THROWS(lane.peek(), "in the middle of a frame");
  CHECK_THROWS(lane.pull(taken, 1), "in the middle of a frame");
}

TEST(a_lost_connection_wakes_nobody) {
  Bare bare;
  const int epoll = epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {}};
  CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, bare.endpoint->descriptor(), &event), 0);
  CHECK_EQ(epoll_wait(epoll, &event, 1, 0), 0);
  bare.hang_up();
  CHECK_EQ(epoll_wait(epoll, &event, 1, 1000), 1);
  CHECK_THROWS(bare.endpoint->poll(), "closed");
  CHECK_EQ(epoll_wait(epoll, &event, 1, 0), 0);
  close(epoll);
}

TEST(nonsense_on_the_wire_is_refused) {
  using tcp::FrameHeader;
  using tcp::FrameKind;
  const std::vector<std::pair<std::function<void(FrameHeader&)>, std::string>> mistakes = {
      {[](FrameHeader& h) { h.magic ^= 1; }, "wrong magic"},
      {[](FrameHeader& h) { h.version = 2; }, "protocol version 2, not 1"},
      {[](FrameHeader& h) { h.kind = FrameKind::kWaiting; }, "unknown kind 4"},
      {[](FrameHeader& h) { h.kind = static_cast<FrameKind>(99); }, "unknown kind 99"},
      {[](FrameHeader& h) { h.kind = FrameKind::kCredit; }, "credit frame that carries"},
      {[](FrameHeader& h) { h.kind = FrameKind::kFault; }, "malformed fault"},
      {[](FrameHeader& h) { h.kind = FrameKind::kGoodbye; }, "malformed goodbye"},
      {[](FrameHeader& h) { h.link = 1; }, "reserved"},
      {[](FrameHeader& h) { h.tag = 1; }, "reserved"},
      {[](FrameHeader& h) { h.reserved = 1; }, "reserved"},
      {[](FrameHeader& h) { h.acknowledged = 1; }, "acknowledgement of what was not sent"},
      {[](FrameHeader& h) { h.length = 0; }, "empty frame"},
      {[](FrameHeader& h) { h.length = 101; }, "past the end"},
      {[](FrameHeader& h) { h.offset = ~0ULL; }, "past the end"},
      {[](FrameHeader& h) { h.offset = h.length = 50; }, "without its beginning"},
      {[](FrameHeader& h) { h.length = tcp::kMaxFrame + 1, h.message_bytes = 1 << 30; },
       "a frame of 262145 bytes"},
  };
  for (const auto& [spoil, message] : mistakes) {
    Bare bare;
    FrameHeader header = data_header(std::string(100, 'a'));
    spoil(header);
    bare.write(header);
    rest(2ms);
    CHECK_THROWS(bare.endpoint->poll(), "rank 7 sent nonsense, protocol error: ");
    CHECK_THROWS(bare.endpoint->lane(1, 2).head(), message);
  }
}

TEST(frames_that_do_not_fit_together_are_refused) {
  const std::string half(50, 'a');
  const std::vector<std::pair<std::function<void(tcp::FrameHeader&)>, std::string>> mistakes = {
      {[](tcp::FrameHeader& h) { h.offset = 0; }, "inside another"},
      {[](tcp::FrameHeader& h) { h.offset = 49; }, "does not continue"},
      {[](tcp::FrameHeader& h) { h.sequence ^= 1; }, "does not continue"},
      {[](tcp::FrameHeader& h) { h.fingerprint ^= 1; }, "does not continue"},
      {[](tcp::FrameHeader& h) { h.message_bytes += 1; }, "does not continue"},
  };
  for (const auto& [spoil, message] : mistakes) {
    Bare bare;
    tcp::FrameHeader header = data_header(std::string(100, 'a'));
    header.length = 50;
    bare.write(header, half);
    header.offset = 50;
    spoil(header);
    bare.write(header, half);
    rest(2ms);
    std::byte taken[50];
    bare.endpoint->poll();
    CHECK_EQ(bare.endpoint->lane(1, 2).pull(taken, 50), 50);
    CHECK_THROWS(bare.endpoint->lane(1, 2).peek(), message);
  }
}

TEST(more_than_credit_is_refused) {
  Bare bare;
  const std::string piece(1 << 18, 'a');
  tcp::FrameHeader header = data_header(piece);
  header.message_bytes = 8 << 20;
  for (int i = 0; i < 4; ++i) {
    header.offset = i * piece.size();
    if (i < 3) bare.write(header, piece);
    if (i == 3) bare.write(header);
    for (int k = 0; k < 5 && i < 3; ++k) rest(2ms), bare.endpoint->poll();
  }
  rest();
  bare.endpoint->poll();
  CHECK_THROWS(bare.endpoint->check(), "more bytes than it has credit for");
}

TEST(too_many_strange_lanes_are_refused) {
  Bare bare;
  std::thread writer([&] {
    for (std::size_t i = 0; i <= tcp::kMaxStrangeLanes; ++i) {
      tcp::FrameHeader header = data_header("", static_cast<std::uint32_t>(i));
      ::send(bare.fd, &header, sizeof header, MSG_NOSIGNAL);
    }
  });
  const auto deadline = Clock::now() + 20s;
  const auto flood = [&] {
    while (Clock::now() < deadline) bare.endpoint->poll(), bare.endpoint->check();
  };
  CHECK_THROWS(flood(), "too many lanes");
  writer.join();
}

TEST(what_is_no_stream_socket_is_refused) {
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  CHECK_THROWS(make_tcp_endpoint(1, ends[0]), "as a TCP connection");
  CHECK_EQ(fcntl(ends[0], F_GETFD), -1);  // it was taken, so it was closed
  close(ends[1]);
  CHECK_THROWS(make_tcp_endpoint(1, socket(AF_INET, SOCK_DGRAM, 0)), "as a TCP connection");
}
