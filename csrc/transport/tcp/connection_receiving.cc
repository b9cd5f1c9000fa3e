#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/tcp/connection.h"

namespace pycomm::tcp {
namespace {

constexpr std::size_t kLeft = 16 << 10;       // a payload at least so large is left for a direct read
constexpr std::size_t kDueBytes = 256 << 10;  // so many unacknowledged bytes are told of at once

}  // namespace

// -- Which link.

void Connection::start_reading() {
  for (auto& link : links_) link->start_reading();
}

// A large payload that cannot go to the user yet stays in its socket until it can, or until `poll` finds
// nothing better to do: its lane's window costs a copy.
bool Connection::early(const Arriving& frame) const {
  return frame.large && frame.left != 0 && frame.lane != nullptr && !frame.lane->closed() &&
         frame.position() > frame.lane->coverage().next();
}

Link* Connection::next_to_read(const TcpLane& lane) {
  Link* found = nullptr;
  for (auto& link : links_) {
    if (!link->can_read()) continue;
    const Arriving& frame = link->arriving;
    if (frame.left != 0 && frame.lane == &lane && lane.direct(frame.position())) return link.get();
    if (found == nullptr && !early(frame)) found = link.get();
  }
  return found;
}

bool Connection::leave_for_direct_read(const Link& link) {
  const Arriving& frame = link.arriving;
  return frame.left >= kLeft && frame.lane != nullptr && frame.lane->direct(frame.position()) &&
         std::exchange(frame.lane->eager, false);
}

// -- Steps.

std::size_t Connection::advance(Link& link, const TcpLane* reader, std::span<std::byte> to) {
  link.step();
  if (link.arriving.left == 0) {
    link.inbox().size() >= sizeof(FrameHeader) ? enter(link, link.inbox().header()) : link.inbox().fill();
    return 0;
  }
  if (link.arriving.lane != nullptr) return read_payload(link, reader, to);
  link.read(std::span(link.control).last(link.arriving.left));
  if (link.arriving.left == 0) end_fault(link);
  return 0;
}

std::size_t Connection::read_payload(Link& link, const TcpLane* reader, std::span<std::byte> to) {
  const FrameHeader header = link.arriving.header;
  TcpLane& lane = *link.arriving.lane;
  const std::uint64_t position = link.arriving.position();
  const auto [here, length] = lane.coverage().run(position, link.arriving.left);
  const bool wanted = !here && !lane.closed();
  const bool direct = wanted && reader == &lane && lane.direct(position);
  if (!wanted) to = discarded_;
  if (wanted && !direct) to = lane.room(position, length);
  const std::size_t got = link.read(to.first(std::min<std::size_t>(to.size(), length)));
  if (got == 0) return 0;
  if (!lane.stored(header, position, got)) nonsense_came("pieces with too many gaps between them");
  if (direct) lane.take(got);
  if (link.alive() && link.arriving.left == 0) took(link, header);
  return direct ? got : 0;
}

void Connection::enter(Link& link, const FrameHeader& header) {
  if (const std::string what = nonsense(header); !what.empty()) return nonsense_came(what);
  if (header.link != link.index())
    return nonsense_came("a frame of link " + std::to_string(header.link) + " on link " +
                         std::to_string(link.index()));
  const auto released = [](const Sent& sent) {
    if (sent.lane != nullptr) sent.lane->acknowledged_frame(begin_of(sent.header));
  };
  if (!link.acknowledge(header.taken, released))
    return nonsense_came("an acknowledgement of frames that were not sent");
  switch (header.kind) {
    case FrameKind::kData:
    case FrameKind::kCredit:
      return enter_lane(link, header);
    case FrameKind::kFault:
      link.arriving = {header, nullptr, header.length};
      return link.control.resize(header.length);
    case FrameKind::kGoodbye:
      goodbye_ = true;
      return drop(link, "said goodbye and closed its connection");
    case FrameKind::kLinkLost:
      took(link, header);
      return enter_loss(link, header.position);
    case FrameKind::kPing:
      took(link, header);
      return link.pay();
    case FrameKind::kTaken:
    case FrameKind::kWaiting:
      break;
  }
}

void Connection::enter_lane(Link& link, const FrameHeader& header) {
  TcpLane& lane = lane_at(header.communicator, header.lane);
  if (strange_lanes_ > kMaxStrangeLanes)
    return nonsense_came("frames on too many lanes that nobody uses here");
  if (!lane.acknowledge(header.acknowledged)) return nonsense_came("an acknowledgement of what was not sent");
  if (header.kind == FrameKind::kCredit) return took(link, header);
  if (const std::string what = lane.enter(header, single()); !what.empty()) return nonsense_came(what);
  lane.eager = true;
  if (header.length == 0) return took(link, header);
  link.arriving = {header, &lane, header.length, header.length >= kLeft};
}

// The peer has given up one of its links: what it had on the way there comes over another, and so must ours.
void Connection::enter_loss(const Link& link, std::uint64_t lost) {
  if (lost >= links_.size() || lost == link.index())
    return nonsense_came("the loss of a link that cannot be");
  if (links_[lost]->alive()) drop(*links_[lost], "was given up by the peer");
}

void Connection::end_fault(Link& link) {
  const FrameHeader header = link.arriving.header;
  took(link, header);
  if (fault_) return;
  FaultFrame frame;
  std::memcpy(&frame, link.control.data(), sizeof frame);
  const auto* text = reinterpret_cast<const char*>(link.control.data());
  fault_ = {frame.kind, frame.culprit, header.communicator, header.sequence,
            std::string(text + sizeof frame, link.control.size() - sizeof frame)};
}

// -- Acknowledgement.

void Connection::took(Link& link, const FrameHeader& header) {
  link.took(header);
  if (single()) return;
  if (link.owed_bytes() >= kDueBytes) link.pay();
  if (link.owed_bytes() != 0) owes_large_.store(true, std::memory_order_relaxed);
}

void Connection::pay() {
  for (auto& link : links_)
    if (link->alive() && link->owes()) link->pay();
  owes_large_.store(false, std::memory_order_relaxed);
}

// Small frames were released without it; what is owed for them goes with what follows.
void Connection::acknowledge() {
  if (!owes_large_.load(std::memory_order_relaxed)) return;
  const Lock lock(*this);
  pay();
}

}  // namespace pycomm::tcp
