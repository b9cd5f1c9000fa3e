#include "transport/tcp/connection.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "transport/descriptor.h"

namespace pycomm::tcp {
namespace {

constexpr std::size_t kSlice = kMaxFrame;  // of 32 to 256 KiB the largest takes the least time on the CPU
constexpr std::size_t kPendingLimit = 64 << 10;  // small frames are copied until so much is pending
constexpr std::size_t kLeft = 16 << 10;          // a payload at least so large is left for a direct read
constexpr int kSteps = 64;                       // of reading, in one call

}  // namespace

Connection::Connection(int peer, int socket_fd, const TcpOptions& options)
    : peer_(peer), options_(options), socket_(socket_fd, options) {}

Connection::~Connection() {
  if (lost_.empty()) leave();
}

// -- Lanes.

Lane& Connection::lane(std::uint32_t communicator, std::uint16_t channel) {
  const Lock lock(*this);
  if (closed_.contains(communicator))
    throw std::logic_error("communicator " + std::to_string(communicator) + " was closed");
  TcpLane& lane = lane_at(communicator, channel);
  if (!lane.asked_for) --strange_lanes_;
  lane.asked_for = true;
  return lane;
}

TcpLane& Connection::lane_at(std::uint32_t communicator, std::uint16_t channel) {
  auto& lane = lanes_[std::uint64_t{communicator} << 16 | channel];
  if (!lane) {
    lane = std::make_unique<TcpLane>(*this, communicator, channel);
    ++strange_lanes_;
    if (closed_.contains(communicator)) lane->close();
  }
  return *lane;
}

// The lanes stay, empty, to count what still comes and to give credit for it, so that the peer does not get
// stuck.
void Connection::forget(std::uint32_t communicator) {
  const Lock lock(*this);
  closed_.insert(communicator);
  for (auto& [key, lane] : lanes_)
    if (key >> 16 == communicator) lane->close();
}

bool Connection::undelivered() const {
  return std::ranges::any_of(lanes_, [](const auto& entry) { return entry.second->undelivered(); });
}

// -- Sending.

bool Connection::send_small(const Frame& frame) {
  flush();
  if (outbox_.write({&frame, 1}) == 1) return true;
  full_ = true;
  if (outbox_.pending() > kPendingLimit) return false;
  outbox_.append(frame);
  return true;
}

// A lane that has had its turn lets another go first if that one found the socket full meanwhile.
std::size_t Connection::send_large(const TcpLane& lane, std::span<const std::byte> bytes) {
  if (last_ == &lane && refused_ != nullptr) {
    refused_ = nullptr;
    return 0;
  }
  flush();
  std::array<Frame, Outbox::kFrames> frames;
  std::size_t count = 0;
  for (std::size_t at = 0; at < bytes.size() && count < frames.size(); at += kSlice) {
    const std::size_t length = std::min(kSlice, bytes.size() - at);
    frames[count++] = {lane.header(*lane.sending_, lane.offset_ + at, length), bytes.data() + at};
  }
  const std::size_t sent = outbox_.write({frames.data(), count});
  if (sent < count) full_ = true;
  if (sent == 0) {
    if (last_ != &lane) refused_ = &lane;
    return 0;
  }
  last_ = &lane;
  if (refused_ == &lane) refused_ = nullptr;
  return std::min(bytes.size(), sent * kSlice);
}

void Connection::send_control(const Frame& frame) {
  outbox_.append(frame);
  flush();
}

bool Connection::flush() { return outbox_.flush(); }

bool Connection::wants_write() const {
  const Lock lock(*this);
  if (!goodbye_) told_write_ = lost_.empty() && (wants_write_ || full_ || outbox_.pending() != 0);
  return told_write_;
}

// -- Receiving.

void Connection::start_reading() {
  steps_ = kSteps;
  inbox_.expect_more();
}

bool Connection::can_read() const {
  if (!lost_.empty() || steps_ == 0) return false;
  return !inbox_.dry() || inbox_.size() >= (left_ != 0 ? 1 : sizeof(FrameHeader));
}

std::size_t Connection::advance(TcpLane* lane, std::span<std::byte> to) {
  --steps_;
  if (left_ == 0) {
    inbox_.size() >= sizeof(FrameHeader) ? enter(inbox_.header()) : inbox_.fill();
    return 0;
  }
  const bool direct = lane != nullptr && lane == receiving_ && lane->direct();
  const std::span<std::byte> target = direct ? to.first(std::min(to.size(), left_)) : room();
  const std::size_t got = inbox_.payload(target, target.size() == left_, large_);
  left_ -= got;
  if (got == 0) return 0;
  if (direct) {
    lane->messages_.front().received += got;
    lane->take(got);
  } else if (receiving_ == nullptr) {
    if (left_ == 0) end_fault();
  } else if (!receiving_->closed()) {
    receiving_->stored(got);
  }
  return direct ? got : 0;
}

// Where payload goes that nobody is waiting for.
std::span<std::byte> Connection::room() {
  if (receiving_ == nullptr) return std::span(fault_payload_).last(left_);
  if (receiving_->closed()) return std::span(discarded_).first(std::min(left_, discarded_.size()));
  return receiving_->room(left_);
}

void Connection::enter(const FrameHeader& header) {
  if (const std::string what = nonsense(header); !what.empty()) return nonsense_came(what);
  if (header.kind == FrameKind::kGoodbye) {
    goodbye_ = true;
    return lose("said goodbye and closed its connection");
  }
  if (header.kind == FrameKind::kFault) return enter_fault(header);
  TcpLane& lane = lane_at(header.communicator, header.lane);
  if (strange_lanes_ > kMaxStrangeLanes)
    return nonsense_came("frames on too many lanes that nobody uses here");
  if (!lane.acknowledge(header.acknowledged)) return nonsense_came("an acknowledgement of what was not sent");
  if (header.kind == FrameKind::kCredit) return;
  if (const std::string what = lane.enter(header); !what.empty()) return nonsense_came(what);
  receiving_ = &lane;
  left_ = header.length;
  large_ = header.length >= kLeft;
  lane.eager = true;
}

void Connection::enter_fault(const FrameHeader& header) {
  receiving_ = nullptr;
  left_ = header.length;
  large_ = false;
  fault_header_ = header;
  fault_payload_.resize(header.length);
}

void Connection::end_fault() {
  if (fault_) return;
  FaultFrame frame;
  std::memcpy(&frame, fault_payload_.data(), sizeof frame);
  const auto* text = reinterpret_cast<const char*>(fault_payload_.data());
  fault_ = {frame.kind, frame.culprit, fault_header_.communicator, fault_header_.sequence,
            std::string(text + sizeof frame, fault_payload_.size() - sizeof frame)};
}

// -- Faults, life and death.

void Connection::post_fault(const Fault& fault) {
  const Lock lock(*this);
  if (!lost_.empty()) return;
  const std::string text = fault.text.substr(0, kMaxFaultText);
  const FaultFrame frame{fault.kind, fault.culprit};
  std::vector<std::byte> payload(sizeof frame + text.size());
  std::memcpy(payload.data(), &frame, sizeof frame);
  std::memcpy(payload.data() + sizeof frame, text.data(), text.size());
  FrameHeader header;
  header.kind = FrameKind::kFault;
  header.communicator = fault.communicator;
  header.sequence = fault.sequence;
  header.message_bytes = header.length = static_cast<std::uint32_t>(payload.size());
  send_control({header, payload.data()});
}

std::optional<Fault> Connection::fault() {
  const Lock lock(*this);
  return fault_;
}

std::vector<LinkState> Connection::links() const {
  const Lock lock(*this);
  return {{counters_.sent_bytes, counters_.received_bytes, lost_}};
}

bool Connection::poll() {
  const Lock lock(*this);
  wants_write_ = std::exchange(full_, false);
  const bool moved = flush();
  const std::uint64_t before = inbox_.progress();
  start_reading();
  while (can_read()) {
    if (left_ >= kLeft && receiving_ != nullptr && receiving_->direct() &&
        std::exchange(receiving_->eager, false))
      break;
    advance();
  }
  settle();
  if (!lost_.empty() && !goodbye_ && !undelivered()) must_live();
  return moved || inbox_.progress() != before;
}

void Connection::check() {
  const Lock lock(*this);
  socket_.look();
  settle();
  if (!goodbye_) must_live();
}

void Connection::must_live() const {
  if (!lost_.empty()) throw PeerLostError(peer_, "rank " + std::to_string(peer_) + " " + lost_);
}

// What came before the end goes into the windows first: credit sees to it that they have room.
void Connection::settle() {
  if (!lost_.empty() || !socket_.broken()) return;
  do {
    start_reading();
    while (can_read()) advance();
  } while (lost_.empty() && steps_ == 0);
  if (!lost_.empty()) return;
  std::string why = "closed its connection";
  if (left_ != 0 || inbox_.size() != 0) why += " in the middle of a frame";
  if (socket_.error() != 0) why += " (" + std::generic_category().message(socket_.error()) + ")";
  lose(why);
}

void Connection::nonsense_came(const std::string& what) { lose("sent nonsense, protocol error: " + what); }

void Connection::lose(const std::string& why) {
  lost_ = why;
  left_ = 0;
  // Nobody hears of a goodbye from `poll`, so nobody takes the descriptor out of what ends a sleep.
  goodbye_ ? socket_.retire() : socket_.hang_up();
}

// Closing a socket with unread input would discard what is still on its way out, so input is read and dropped
// until the peer's machine has everything.
void Connection::leave() {
  FrameHeader goodbye;
  goodbye.kind = FrameKind::kGoodbye;
  send_control({goodbye, nullptr});
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + options_.linger;
  const iovec piece{discarded_.data(), discarded_.size()};
  bool finished = false;
  while (!socket_.broken() && Clock::now() < deadline) {
    while (socket_.read({&piece, 1}) == piece.iov_len) continue;
    flush();
    if (outbox_.pending() == 0) {
      if (!std::exchange(finished, true)) socket_.finish_writing();
      if (socket_.unacknowledged() == 0) break;
    }
    socket_.wait(outbox_.pending() != 0, std::chrono::milliseconds(1));
  }
}

}  // namespace pycomm::tcp

namespace pycomm {

std::unique_ptr<Endpoint> make_tcp_endpoint(int peer, const std::vector<int>& socket_fds,
                                            const TcpOptions& options) {
  std::vector<Descriptor> sockets;
  for (const int fd : socket_fds) sockets.emplace_back(fd);
  if (sockets.size() != 1)
    throw std::invalid_argument("an endpoint takes one socket, not " + std::to_string(sockets.size()));
  return std::make_unique<tcp::Connection>(peer, sockets.front().release(), options);
}

}  // namespace pycomm
