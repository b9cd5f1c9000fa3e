// One endpoint against a bare socket: ends, nonsense, and what a peer may not do.
#include <fcntl.h>
#include <sys/epoll.h>

#include <string>

#include "tests/tcp_traffic.h"
#include "transport/tcp/frame.h"

using namespace pycomm;

namespace {

// An endpoint for rank 7, and its peer's bare socket.
struct Bare {
  Bare() {
    const Pair fds = internet_pair(AF_INET);
    endpoint = make_tcp_endpoint(7, {fds.first});
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
  header.position = tcp::kMessageCharge;  // the lane's first message
  return header;
}

// What a real endpoint sends: messages on two lanes, a fault, a goodbye.
std::vector<char> valid_stream() {
  const Pair fds = unix_pair();
  {
    auto endpoint = make_tcp_endpoint(0, {fds.first});
    Sender one(endpoint->lane(1, 1), {1, {100, 0, 20000, 7}}),
        two(endpoint->lane(1, 2), {2, {3000, 0, 0, 900}});
    while (one.step() | two.step()) continue;
    endpoint->post_fault({1, 2, 3, 4, "a fault"});
  }
  std::vector<char> stream(1 << 17);
  const ssize_t size = recv(fds.second, stream.data(), stream.size(), MSG_WAITALL);
  close(fds.second);
  CHECK(size > 24000);
  stream.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return stream;
}

// Flips a bit of one of the headers; they are found by their magic number.
void spoil_a_header(std::vector<char>& stream, std::mt19937_64& random) {
  const std::uint32_t magic = tcp::kMagic;
  const auto* wanted = reinterpret_cast<const char*>(&magic);
  auto at = stream.begin();
  for (auto hops = random() % 12; hops-- != 0;) {
    const auto next = std::search(at + 1, stream.end(), wanted, wanted + sizeof magic);
    if (next == stream.end()) break;
    at = next;
  }
  at[static_cast<std::ptrdiff_t>(random() % sizeof(tcp::FrameHeader))] ^=
      static_cast<char>(1 << random() % 8);
}

void take_something(Endpoint& endpoint, std::mt19937_64& random) {
  std::vector<std::byte> taken(1 + random() % 50000);
  endpoint.poll();
  for (std::uint16_t channel : {1, 2}) {
    Lane& lane = endpoint.lane(1, channel);
    const Envelope* head = lane.head();
    if (head != nullptr && head->bytes == 0) lane.finish();
    if (head != nullptr && head->bytes != 0) lane.pull(taken.data(), taken.size());
  }
}

}  // namespace

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

TEST(a_peer_that_left_wakes_nobody) {
  Bare bare;
  const int epoll = epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {}};
  const auto watched = bare.endpoint->descriptors();
  CHECK_EQ(watched.size(), 1);
  CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, watched.front().descriptor, &event), 0);
  CHECK_EQ(epoll_wait(epoll, &event, 1, 0), 0);
  tcp::FrameHeader goodbye;
  goodbye.kind = tcp::FrameKind::kGoodbye;
  bare.write(goodbye);
  bare.hang_up();
  CHECK_EQ(epoll_wait(epoll, &event, 1, 1000), 1);
  const std::uint64_t changes = bare.endpoint->changes();
  bare.endpoint->poll();
  CHECK(bare.endpoint->changes() != changes);
  CHECK(bare.endpoint->descriptors().empty());
  CHECK_THROWS(bare.endpoint->lane(1, 2).head(), "rank 7 said goodbye");
  close(epoll);
}

TEST(nonsense_on_the_wire_is_refused) {
  using tcp::FrameHeader;
  using tcp::FrameKind;
  const std::vector<std::pair<std::function<void(FrameHeader&)>, std::string>> mistakes = {
      {[](FrameHeader& h) { h.magic ^= 1; }, "wrong magic"},
      {[](FrameHeader& h) { h.version = 1; }, "protocol version 1, not 2"},
      {[](FrameHeader& h) { h.kind = FrameKind::kWaiting; }, "unknown kind 4"},
      {[](FrameHeader& h) { h.kind = static_cast<FrameKind>(99); }, "unknown kind 99"},
      {[](FrameHeader& h) { h.kind = FrameKind::kCredit; }, "credit frame that carries"},
      {[](FrameHeader& h) { h.kind = FrameKind::kFault; }, "malformed fault"},
      {[](FrameHeader& h) { h.kind = FrameKind::kGoodbye; }, "malformed goodbye"},
      {[](FrameHeader& h) { h.kind = FrameKind::kTaken; }, "acknowledgement that carries"},
      {[](FrameHeader& h) { h.kind = FrameKind::kPing; }, "acknowledgement that carries"},
      {[](FrameHeader& h) { h.kind = FrameKind::kLinkLost; }, "malformed frame about a lost link"},
      {[](FrameHeader& h) { h.link = 1; }, "a frame of link 1 on link 0"},
      {[](FrameHeader& h) { h.tag = 1; }, "reserved"},
      {[](FrameHeader& h) { h.taken = 1; }, "acknowledgement of frames that were not sent"},
      {[](FrameHeader& h) { h.position = 0; }, "where no message can have it"},
      {[](FrameHeader& h) { h.position += 1; }, "where no message can have it"},
      {[](FrameHeader& h) { h.position += 8; }, "does not continue its lane"},
      {[](FrameHeader& h) { h.position = ~0ULL / 8 * 8; }, "more bytes than it has credit for"},
      {[](FrameHeader& h) { h.message_bytes = ~0ULL; }, "no memory can hold"},
      {[](FrameHeader& h) { h.acknowledged = 1; }, "acknowledgement of what was not sent"},
      {[](FrameHeader& h) { h.length = 0; }, "empty frame"},
      {[](FrameHeader& h) { h.length = 101; }, "past the end"},
      {[](FrameHeader& h) { h.offset = ~0ULL; }, "past the end"},
      {[](FrameHeader& h) { h.offset = h.length = 48, h.position += 48; }, "does not continue its lane"},
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
      {[](tcp::FrameHeader& h) { h.offset = 0, h.position -= 50; }, "does not continue its lane"},
      {[](tcp::FrameHeader& h) { h.offset = 49, h.position -= 1; }, "does not continue its lane"},
      {[](tcp::FrameHeader& h) { h.offset = 42; }, "inside another"},
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
    header.position += 50;
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
    header.position = tcp::kMessageCharge + header.offset;
    if (i < 3) bare.write(header, piece);
    if (i == 3) bare.write(header);
    for (int k = 0; k < 5 && i < 3; ++k) rest(2ms), bare.endpoint->poll();
  }
  rest();
  bare.endpoint->poll();
  CHECK_THROWS(bare.endpoint->check(), "more bytes than it has credit for");
}

// Whatever bytes come: lanes hand out, or the peer is lost; nothing breaks, and nothing is read without end.
TEST(spoiled_streams_do_no_harm) {
  const std::vector<char> stream = valid_stream();
  std::mt19937_64 random(5);
  int lost = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<char> spoiled = stream;
    for (auto flips = random() % 3; flips-- != 0;) spoil_a_header(spoiled, random);
    const Pair ends = unix_pair();
    CHECK_EQ(::send(ends.second, spoiled.data(), spoiled.size(), MSG_DONTWAIT), spoiled.size());
    close(ends.second);
    auto endpoint = make_tcp_endpoint(7, {ends.first});
    try {
      for (int turn = 0; turn < 200; ++turn) take_something(*endpoint, random);
    } catch (const PeerLostError& error) {
      CHECK_EQ(error.peer, 7);
      ++lost;
    }
  }
  CHECK_EQ(lost, 500);  // at the latest by the goodbye or the end
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
  CHECK_THROWS(make_tcp_endpoint(1, {ends[0]}), "as a TCP connection");
  CHECK_EQ(fcntl(ends[0], F_GETFD), -1);  // it was taken, so it was closed
  close(ends[1]);
  CHECK_THROWS(make_tcp_endpoint(1, {socket(AF_INET, SOCK_DGRAM, 0)}), "as a TCP connection");
}
