// One endpoint of two links against bare sockets: what comes early, twice or by halves, and what may not
// come.
#include <string>

#include "tests/tcp_traffic.h"
#include "transport/tcp/coverage.h"
#include "transport/tcp/frame.h"

using namespace pycomm;
using tcp::FrameHeader;
using tcp::FrameKind;

namespace {

// An endpoint for rank 7, and its peer's bare sockets.
struct Bare {
  Bare() {
    std::vector<int> own;
    for (int& fd : fds) {
      const Pair pair = internet_pair(AF_INET);
      own.push_back(pair.first);
      fd = pair.second;
    }
    endpoint = make_tcp_endpoint(7, own);
  }
  ~Bare() {
    for (const int fd : fds) close(fd);
  }
  Lane& lane() { return endpoint->lane(1, 2); }
  void write(int link, FrameHeader header, std::span<const std::byte> payload = {}) {
    header.link = static_cast<std::uint16_t>(link);
    CHECK_EQ(send(fds[link], &header, sizeof header, MSG_NOSIGNAL), sizeof header);
    CHECK_EQ(send(fds[link], payload.data(), payload.size(), MSG_NOSIGNAL), payload.size());
  }
  // The stream of one link ends, without a goodbye.
  void end(int link) { shutdown(fds[link], SHUT_RDWR); }
  void poll() {
    for (int i = 0; i < 5; ++i, rest(1ms)) endpoint->poll();
  }
  // The next frame that the endpoint has sent over a link, and its payload.
  std::pair<FrameHeader, std::vector<std::byte>> read(int link) {
    FrameHeader header;
    for (int i = 0; i < 1000; ++i, rest(1ms)) {
      endpoint->poll();
      if (recv(fds[link], &header, sizeof header, MSG_PEEK | MSG_DONTWAIT) == sizeof header) break;
    }
    CHECK_EQ(recv(fds[link], &header, sizeof header, MSG_DONTWAIT), sizeof header);
    CHECK_EQ(header.magic, tcp::kMagic);
    std::vector<std::byte> payload(header.length);
    if (!payload.empty())
      CHECK_EQ(recv(fds[link], payload.data(), payload.size(), MSG_WAITALL), payload.size());
    return {header, payload};
  }

  std::unique_ptr<Endpoint> endpoint;
  int fds[2];
};

// A message and its frames.
struct Pieces {
  explicit Pieces(std::size_t bytes, std::uint64_t begin = 0) : begin(begin), content(bytes) {
    messages.sizes = {bytes};
    messages.fill(0, 0, content);
  }
  FrameHeader header(std::size_t offset, std::size_t length) const {
    FrameHeader header;
    header.communicator = 1;
    header.lane = 2;
    header.sequence = messages.envelope(0).sequence;
    header.fingerprint = messages.envelope(0).fingerprint;
    header.message_bytes = content.size();
    header.offset = offset;
    header.position = begin + tcp::kMessageCharge + offset;
    header.length = static_cast<std::uint32_t>(length);
    return header;
  }
  std::span<const std::byte> bytes(std::size_t offset, std::size_t length) const {
    return std::span(content).subspan(offset, length);
  }
  void write(Bare& to, int link, std::size_t offset, std::size_t length) const {
    to.write(link, header(offset, length), bytes(offset, length));
  }
  void check_rest(Bare& bare, std::size_t from = 0) const {
    std::vector<std::byte> taken(content.size() - from);
    std::size_t got = 0;
    for (int i = 0; i < 1000 && got < taken.size(); ++i) {
      const Envelope* head = bare.lane().head();
      if (head != nullptr && (CHECK(*head == messages.envelope(0)), true))
        got += bare.lane().pull(taken.data() + got, taken.size() - got);
      if (bare.endpoint->poll()) continue;
      rest(1ms);
    }
    CHECK_EQ(got, taken.size());
    CHECK(std::ranges::equal(taken, bytes(from, taken.size())));
  }

  std::uint64_t begin;
  Messages messages{3, {}};
  std::vector<std::byte> content;
};

FrameHeader frame_of(FrameKind kind) {
  FrameHeader header;
  header.kind = kind;
  return header;
}

}  // namespace

TEST(coverage_is_what_a_list_of_all_positions_says) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    tcp::Coverage coverage;
    std::vector<bool> here(300);
    for (int i = 0; i < 60; ++i) {
      const std::size_t begin = random() % 280, length = random() % 20;
      CHECK(coverage.add(begin, length));
      std::fill_n(here.begin() + static_cast<std::ptrdiff_t>(begin), length, true);
      const auto next = static_cast<std::uint64_t>(std::ranges::find(here, false) - here.begin());
      CHECK_EQ(coverage.next(), next);
      CHECK_EQ(coverage.gapless(), std::count(here.begin(), here.end(), true) == std::ptrdiff_t(next));
      const std::size_t at = random() % 280, most = 1 + random() % 20;
      std::size_t run = 1;
      while (run < most && here[at + run] == here[at]) ++run;
      CHECK_EQ(coverage.run(at, most).here, here[at]);
      CHECK_EQ(coverage.run(at, most).length, run);
    }
  }
  tcp::Coverage gaps;
  std::size_t added = 0;
  while (added < 10000 && gaps.add(2 * added + 1, 1)) ++added;
  CHECK_EQ(added, tcp::kMaxGaps);
}

TEST(what_comes_early_waits_for_its_turn) {
  Bare bare;
  const Pieces first(50000), second(30, tcp::charge_of(50000));
  second.write(bare, 1, 0, 30);
  first.write(bare, 1, 20000, 30000);
  bare.poll();
  CHECK(bare.lane().head() != nullptr);  // a piece tells of its message
  CHECK(bare.lane().peek().empty());
  first.write(bare, 0, 0, 20000);
  first.check_rest(bare);
  second.check_rest(bare);
}

TEST(a_later_message_is_no_head) {
  Bare bare;
  const Pieces first(0), second(30, tcp::charge_of(0));
  second.write(bare, 1, 0, 30);
  bare.poll();
  CHECK(bare.lane().head() == nullptr);
  CHECK(bare.lane().peek().empty());
  first.write(bare, 0, 0, 0);
  bare.poll();
  CHECK(bare.lane().head() != nullptr && bare.lane().head()->bytes == 0);
  bare.lane().finish();
  second.check_rest(bare);
}

TEST(what_comes_twice_is_dropped) {
  Bare bare;
  const Pieces message(60000), next(10, tcp::charge_of(60000));
  message.write(bare, 0, 0, 30000);
  message.write(bare, 1, 0, 30000);
  message.write(bare, 1, 20000, 40000);
  message.check_rest(bare);
  message.write(bare, 0, 0, 60000);  // after its end
  next.write(bare, 0, 0, 10);
  next.check_rest(bare);
  CHECK_EQ(bare.endpoint->counters().received_bytes, 60010);
}

// The user has taken some of it already, straight from the socket.
TEST(a_frame_that_came_by_half_is_completed_over_another_link) {
  for (const std::size_t half : {1, 8191, 40001, 99999}) {
    Bare bare;
    const Pieces message(100000);
    bare.write(0, message.header(0, 100000), message.bytes(0, half));
    std::vector<std::byte> taken(100000);
    std::size_t got = 0;
    for (int i = 0; i < 1000 && got < half; ++i) {
      if (bare.lane().head() != nullptr) got += bare.lane().pull(taken.data() + got, taken.size() - got);
      if (got < half) bare.endpoint->poll();
    }
    CHECK_EQ(got, half);
    CHECK(std::ranges::equal(std::span(taken).first(got), message.bytes(0, half)));
    bare.end(0);
    bare.poll();
    CHECK_EQ(bare.endpoint->links()[0].lost, "closed its connection in the middle of a frame");
    message.write(bare, 1, 0, 100000);
    message.check_rest(bare, half);
  }
}

TEST(what_is_not_acknowledged_is_sent_again_and_nothing_else) {
  Bare bare;
  std::vector<std::byte> small(100, std::byte{1}), large(30000, std::byte{2});
  const auto send = [&](const std::vector<std::byte>& bytes) {
    CHECK(bare.lane().begin({1, 1, bytes.size()}));
    CHECK_EQ(bare.lane().push(bytes.data(), bytes.size()), bytes.size());
  };
  send(large), send(small), send(large), send(small);
  std::vector<FrameHeader> seen[2];
  for (const int link : {0, 1})
    while (recv(bare.fds[link], small.data(), 1, MSG_PEEK | MSG_DONTWAIT) > 0)
      seen[link].push_back(bare.read(link).first);
  CHECK_EQ(seen[0].size() + seen[1].size(), 4);
  const int lost = seen[0].size() >= 2 ? 0 : 1, other = 1 - lost;
  FrameHeader taken = frame_of(FrameKind::kTaken);
  taken.taken = 1;
  bare.write(lost, taken);
  bare.poll();
  bare.end(lost);
  bool told = false;
  std::vector<std::uint64_t> again;
  while (again.size() + 1 < seen[lost].size() || !told) {
    const auto [header, payload] = bare.read(other);
    if (header.kind == FrameKind::kLinkLost) {
      told = true;
      CHECK_EQ(header.position, lost);
      continue;
    }
    again.push_back(header.position);
    CHECK_EQ(header.link, other);
    CHECK(std::ranges::equal(payload, std::vector(header.length, std::byte(header.length == 100 ? 1 : 2))));
  }
  std::ranges::sort(again);
  std::vector<std::uint64_t> expected;
  for (std::size_t i = 1; i < seen[lost].size(); ++i) expected.push_back(seen[lost][i].position);
  std::ranges::sort(expected);
  CHECK_EQ(again, expected);
  CHECK(!bare.lane().released());
  taken.taken = static_cast<std::uint32_t>(seen[other].size() + again.size() + 1);
  bare.write(other, taken);
  bare.poll();
  CHECK(bare.lane().released());
}

TEST(what_the_peer_gives_up_is_given_up_here) {
  Bare bare;
  std::vector<std::byte> large(30000);
  CHECK(bare.lane().begin({1, 1, large.size()}));
  CHECK_EQ(bare.lane().push(large.data(), large.size()), large.size());
  const int used = bare.endpoint->links()[0].sent_bytes != 0 ? 0 : 1;
  FrameHeader lost = frame_of(FrameKind::kLinkLost);
  lost.position = static_cast<std::uint64_t>(used);
  bare.write(1 - used, lost);
  bare.poll();
  CHECK_EQ(bare.endpoint->links()[static_cast<std::size_t>(used)].lost, "was given up by the peer");
  while (bare.read(1 - used).first.kind != FrameKind::kData) continue;
  bare.lane().recall();
}

TEST(frames_are_acknowledged_when_there_is_nothing_else_to_do) {
  Bare bare;
  bare.write(1, frame_of(FrameKind::kPing));
  bare.write(1, frame_of(FrameKind::kPing));
  auto header = bare.read(1).first;
  CHECK_EQ(header.kind, FrameKind::kTaken);
  while (header.taken < 2) header = bare.read(1).first;
  CHECK_EQ(header.taken, 2);
}

TEST(frames_that_cannot_be_are_refused_on_links) {
  const Pieces message(1000);
  const std::vector<std::pair<std::function<void(FrameHeader&)>, std::string>> mistakes = {
      {[](FrameHeader& h) { h.message_bytes = 2000; }, "does not continue its message"},
      {[](FrameHeader& h) { h.fingerprint ^= 1; }, "does not continue its message"},
      {[](FrameHeader& h) { h.position += 8; }, "a message inside another"},
      {[](FrameHeader& h) { h.position += 504; }, "a message inside another"},
      {[](FrameHeader& h) { h.position += tcp::kWindow; }, "more bytes than it has credit for"},
      {[](FrameHeader& h) { h.taken = 1; }, "acknowledgement of frames that were not sent"},
      {[](FrameHeader& h) { h.acknowledged = 1; }, "acknowledgement of what was not sent"},
      {[](FrameHeader& h) { h = frame_of(FrameKind::kLinkLost), h.position = 1; }, "a link that cannot be"},
      {[](FrameHeader& h) { h = frame_of(FrameKind::kLinkLost), h.position = 2; }, "a link that cannot be"},
  };
  for (const auto& [spoil, text] : mistakes) {
    Bare bare;
    message.write(bare, 0, 0, 500);
    FrameHeader header = message.header(500, 500);
    spoil(header);
    bare.write(1, header, message.bytes(0, header.length));
    for (int i = 0; i < 5; ++i, rest(1ms)) try {
        bare.endpoint->poll();
      } catch (const PeerLostError&) {
      }
    CHECK_THROWS(bare.endpoint->check(), text);
  }
  Bare bare;
  FrameHeader header = message.header(0, 0);
  header.message_bytes = 0;
  bare.write(0, header);
  header.link = 0;
  CHECK_EQ(send(bare.fds[1], &header, sizeof header, MSG_NOSIGNAL), sizeof header);
  rest(2ms);
  bare.endpoint->poll();
  CHECK_THROWS(bare.endpoint->check(), "a frame of link 0 on link 1");
}

TEST(early_pieces_are_bounded) {
  Bare bare;
  const Pieces message(1 << 16);
  for (std::size_t i = 1; i <= tcp::kMaxGaps + 2; ++i) {
    message.write(bare, 0, 2 * i, 1);
    if (i % 100 == 0) try {
        bare.endpoint->poll();
      } catch (const PeerLostError&) {
      }
  }
  for (int i = 0; i < 200; ++i) try {
      bare.endpoint->poll();
    } catch (const PeerLostError&) {
    }
  CHECK_THROWS(bare.endpoint->check(), "too many gaps");
}

// Whatever bytes come over whatever link: lanes hand out, or the peer is lost; nothing breaks.
TEST(spoiled_frames_on_links_do_no_harm) {
  std::mt19937_64 random(3);
  int lost = 0;
  for (int round = 0; round < 300; ++round) {
    Bare bare;
    std::uint64_t begin = 0;
    try {
      for (int i = 0; i < 12; ++i) {
        const Pieces message(random() % 9000, begin);
        begin += tcp::charge_of(message.content.size());
        const std::size_t cut = random() % (message.content.size() + 1);
        for (const auto& [offset, length] : {std::pair(cut, message.content.size() - cut), {0UL, cut}}) {
          if (length == 0 && message.content.size() != 0) continue;
          FrameHeader header = message.header(offset, length);
          if (random() % 20 == 0)
            reinterpret_cast<char*>(&header)[random() % sizeof header] ^=
                static_cast<char>(1 << random() % 8);
          header.link = static_cast<std::uint16_t>(random() % 2);
          const int fd = bare.fds[header.link];  // may have been hung up
          ::send(fd, &header, sizeof header, MSG_NOSIGNAL);
          ::send(fd, message.bytes(offset, length).data(), length, MSG_NOSIGNAL);
        }
        bare.endpoint->poll();
        std::vector<std::byte> taken(1 + random() % 9000);
        const Envelope* head = bare.lane().head();
        if (head != nullptr && head->bytes == 0) bare.lane().finish();
        if (head != nullptr && head->bytes != 0) bare.lane().pull(taken.data(), taken.size());
      }
    } catch (const PeerLostError& error) {
      CHECK_EQ(error.peer, 7);
      ++lost;
    }
  }
  CHECK(lost > 50);
  CHECK(lost < 300);
}
