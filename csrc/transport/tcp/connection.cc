#include "transport/tcp/connection.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace pycomm::tcp {

Connection::Connection(int peer, std::vector<Descriptor> sockets, const TcpOptions& options)
    : peer_(peer), options_(options) {
  if (sockets.empty() || sockets.size() > kMaxLinks)
    throw std::invalid_argument("an endpoint takes 1 to " + std::to_string(kMaxLinks) + " sockets, not " +
                                std::to_string(sockets.size()));
  const bool resumes = sockets.size() > 1;
  for (std::size_t i = 0; i < sockets.size(); ++i)
    links_.push_back(
        std::make_unique<Link>(static_cast<std::uint16_t>(i), sockets[i].release(), options, resumes));
}

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

// -- Driving.

bool Connection::poll() {
  const Lock lock(*this);
  bool moved = false;
  std::uint64_t before = 0, after = 0;
  for (auto& link : links_) {
    link->wants_write = std::exchange(link->full, false);
    if (link->alive()) moved |= link->flush();
    before += link->inbox().progress();
  }
  moved |= resume();
  start_reading();
  for (auto& link : links_)
    while (link->can_read() && !leave_for_direct_read(*link)) advance(*link);
  settle();
  for (auto& link : links_) after += link->inbox().progress();
  moved |= before != after;
  if (!single()) {
    if (!moved) pay();
    watch_silence();
  }
  note_changes();
  if (!lost_.empty() && !goodbye_ && !undelivered()) must_live();
  return moved;
}

void Connection::check() {
  const Lock lock(*this);
  for (auto& link : links_)
    if (link->alive()) link->socket().look();
  settle();
  if (!goodbye_) must_live();
}

void Connection::must_live() const {
  if (!lost_.empty()) throw PeerLostError(peer_, "rank " + std::to_string(peer_) + " " + lost_);
}

std::vector<Endpoint::Watched> Connection::descriptors() const {
  const Lock lock(*this);
  std::vector<Watched> watched;
  for (const auto& link : links_)
    if (link->told_alive) watched.push_back({link->socket().fd(), link->told_write});
  return watched;
}

void Connection::note_changes() {
  bool changed = false;
  for (auto& link : links_) {
    const bool write = link->alive() && (link->wants_write || link->full || link->pending());
    changed |= std::exchange(link->told_alive, link->alive()) != link->alive();
    changed |= std::exchange(link->told_write, write) != write;
  }
  if (changed) changes_.fetch_add(1, std::memory_order_release);
}

Counters Connection::counters() const {
  const Lock lock(*this);
  return counters_;
}

std::vector<LinkState> Connection::links() const {
  const Lock lock(*this);
  std::vector<LinkState> states;
  for (const auto& link : links_) states.push_back(link->state());
  return states;
}

void Connection::cut(std::size_t link) {
  const Lock lock(*this);
  if (link >= links_.size())
    throw std::invalid_argument("there is no link " + std::to_string(link) + " of " +
                                std::to_string(links_.size()));
  links_[link]->socket().cut();
}

// -- Faults.

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

// -- Loss of a link, and of the peer.

void Connection::settle() {
  for (auto& link : links_)
    if (link->alive() && link->socket().broken()) bury(*link);
}

// What came before the end goes into the windows first: credit sees to it that they have room.
void Connection::bury(Link& link) {
  do {
    link.start_reading();
    while (link.can_read()) advance(link);
  } while (link.alive() && link.spent());
  if (!link.alive()) return;
  std::string why = "closed its connection";
  if (link.arriving.left != 0 || link.inbox().size() != 0) why += " in the middle of a frame";
  if (const int error = link.socket().error(); error != 0)
    why += " (" + std::generic_category().message(error) + ")";
  drop(link, why);
}

void Connection::drop(Link& link, const std::string& why) {
  link.end(why);
  if (std::ranges::none_of(links_, [](const auto& each) { return each->alive(); }))
    return lose(goodbye_
                    ? "said goodbye and closed its connection"
                    : why + (single() ? "" : ", the last of " + std::to_string(links_.size()) + " links"));
  if (goodbye_) return;
  for (Sent& sent : link.unacknowledged()) {
    if (sent.lane != nullptr) sent.lane->orphaned(begin_of(sent.header));
    if (sent.header.kind != FrameKind::kPing) orphans_.push_back(std::move(sent));
  }
  link.unacknowledged().clear();
  FrameHeader header;
  header.kind = FrameKind::kLinkLost;
  header.position = link.index();
  send_control({header, nullptr});
  resume();
}

void Connection::nonsense_came(const std::string& what) { lose("sent nonsense, protocol error: " + what); }

void Connection::lose(const std::string& why) {
  lost_ = why;
  for (auto& link : links_)
    if (link->alive()) link->end(why);
}

// Before the goodbye, which nothing may follow, everything reaches the peer's machine, over whatever links
// are left.
void Connection::leave() {
  if (!single() && !drain(Clock::now() + options_.linger)) {
    // Small frames are released before they are acknowledged: those on a dead link only we still have, and
    // there is no time to wait until its silence is proof.
    if (!drop_undrained() || !drain(Clock::now() + options_.linger)) return;
  }
  FrameHeader header;
  header.kind = FrameKind::kGoodbye;
  for (auto& link : links_) {
    Frame goodbye{header, nullptr};
    if (link->alive()) link->append(goodbye);
  }
  drain(Clock::now() + options_.linger);
}

// Gives up the links that still hold something, if there are others for it: what is sent again in vain, as
// the link was only slow, the peer drops. False if there are none.
bool Connection::drop_undrained() {
  std::vector<Link*> holding;  // all of them before the first is dropped, as that fills the others
  bool another = false;
  for (auto& link : links_) {
    if (!link->alive()) continue;
    if (link->drained())
      another = true;
    else
      holding.push_back(link.get());
  }
  if (!another) return false;
  for (Link* link : holding) drop(*link, "had not brought everything when this rank left");
  return true;
}

// Closing a socket with unread input would discard what is still on its way out, so input is read as always
// until the peer's machine has everything. False if that took too long.
bool Connection::drain(Clock::time_point deadline) {
  while (lost_.empty()) {
    bool done = true;
    start_reading();
    for (auto& link : links_) {
      while (link->can_read()) advance(*link);
      if (!link->alive()) continue;
      link->flush();
      done = done && link->drained();
    }
    settle();
    if (done && !resume() && orphans_.empty()) return true;
    if (Clock::now() >= deadline) return false;
    const auto waiting = std::ranges::find_if(links_, [](const auto& link) { return link->alive(); });
    if (waiting != links_.end())
      (*waiting)->socket().wait((*waiting)->pending(), std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace pycomm::tcp

namespace pycomm {

std::unique_ptr<Endpoint> make_tcp_endpoint(int peer, const std::vector<int>& socket_fds,
                                            const TcpOptions& options) {
  std::vector<Descriptor> sockets;
  for (const int fd : socket_fds) sockets.emplace_back(fd);
  return std::make_unique<tcp::Connection>(peer, std::move(sockets), options);
}

}  // namespace pycomm
