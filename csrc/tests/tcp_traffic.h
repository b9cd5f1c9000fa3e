// Traffic over connected sockets, for the tests of the TCP transport.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <ranges>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tests/check.h"
#include "transport/tcp/endpoint.h"

namespace pycomm {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Pair = std::pair<int, int>;

// -- Connected sockets of every kind.

inline Pair unix_pair() {
  int fds[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  return {fds[0], fds[1]};
}

// `bytes` of socket buffers, or what the kernel chooses if 0.
inline Pair internet_pair(int family, int bytes = 0) {
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

using Endpoints = std::pair<std::unique_ptr<Endpoint>, std::unique_ptr<Endpoint>>;

inline Endpoints endpoints(const std::vector<Pair>& links, const TcpOptions& options = {}) {
  std::vector<int> one, two;
  for (const Pair& fds : links) one.push_back(fds.first), two.push_back(fds.second);
  return {make_tcp_endpoint(1, one, options), make_tcp_endpoint(0, two, options)};
}
inline Endpoints endpoints(Pair fds) { return endpoints(std::vector{fds}); }

inline void rest(std::chrono::milliseconds time = 20ms) { std::this_thread::sleep_for(time); }

// -- Messages whose every byte can be foretold.

struct Messages {
  std::uint64_t seed;
  std::vector<std::size_t> sizes;

  Envelope envelope(std::size_t i) const { return {seed * 31 + i, i, sizes[i]}; }
  // Writes the bytes of message i that begin at `offset`.
  void fill(std::size_t i, std::uint64_t offset, std::span<std::byte> to) const {
    for (std::size_t done = 0; done < to.size();) {
      std::uint64_t x = (seed << 40) ^ (i << 28) ^ ((offset + done) >> 3);
      x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
      x = (x ^ x >> 27) * 0x94d049bb133111eb;
      const std::size_t skipped = (offset + done) % 8, bytes = std::min(8 - skipped, to.size() - done);
      std::memcpy(to.data() + done, reinterpret_cast<const char*>(&x) + skipped, bytes);
      done += bytes;
    }
  }
};

inline Messages random_messages(std::uint64_t seed, int count, std::size_t largest) {
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

// Sends, a step at a time. What has been released is overwritten and given back at once.
class Sender {
 public:
  Sender(Lane& lane, Messages messages)
      : lane_(&lane), messages_(std::move(messages)), random_(messages_.seed) {}
  bool done() { return at_ == messages_.sizes.size() && lane_->released(); }
  bool step() {
    give_back();
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
    std::vector<std::byte> piece(wanted);
    messages_.fill(at_, offset_, piece);
    const std::size_t accepted = lane_->push(piece.data(), wanted);
    CHECK(accepted <= wanted);
    std::fill(piece.begin() + static_cast<std::ptrdiff_t>(accepted), piece.end(), std::byte{0xee});
    if (accepted != 0) held_.emplace_back(lane_->mark(), std::move(piece));
    offset_ += accepted;
    if (offset_ == size) ++at_, begun_ = false;
    return accepted != 0;
  }
  std::size_t sent_messages() const { return at_; }

 private:
  void give_back() {
    for (; !held_.empty() && lane_->released_before(held_.front().first); held_.pop_front())
      std::ranges::fill(held_.front().second, std::byte{0xee});
  }

  Lane* lane_;
  Messages messages_;
  std::mt19937_64 random_;
  std::deque<std::pair<std::uint64_t, std::vector<std::byte>>> held_;  // by the lane's mark behind it
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
    expected_.resize(bytes);
    messages_.fill(at_, offset_, expected_);
    CHECK(bytes == 0 || std::memcmp(data, expected_.data(), bytes) == 0);
  }

  Lane* lane_;
  Messages messages_;
  Taking taking_;
  std::mt19937_64 random_;
  std::vector<std::byte> scratch_, expected_;
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
    endpoint.acknowledge();
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
inline void add_traffic(Side& a, Side& b, std::uint32_t communicator, int lanes, int count,
                        std::size_t largest) {
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

}  // namespace pycomm
