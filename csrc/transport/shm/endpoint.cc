#include "transport/shm/endpoint.h"

#include <poll.h>

#include <string>
#include <utility>

#include "transport/shm/incoming.h"
#include "transport/shm/outgoing.h"

namespace pycomm {

// Both directions of one channel.
class ShmLane final : public Lane {
 public:
  ShmLane(int self, LaneStore& own, Lending& lending, const ShmPeer& peer, LaneKey key)
      : out(own, to(key, peer.rank), bell(peer), lending, borrower(self, peer)),
        in(*peer.segment, to(key, self), peer.rank, bell(peer), peer.memory, lending.tiles) {}

  bool send(const Envelope& envelope, const std::byte* data) override { return out.send(envelope, data); }
  void ring() override { out.ring(); }
  bool begin(const Envelope& envelope) override { return out.begin(envelope); }
  std::size_t push(const std::byte* data, std::size_t bytes) override { return out.push(data, bytes); }
  std::size_t lend(const std::byte* data, std::size_t bytes) override { return out.lend(data, bytes); }
  bool released() override { return out.released(); }
  void recall() override { out.recall(); }

  const Envelope* head() override { return in.head(); }
  std::span<const std::byte> peek() override { return in.peek(); }
  void pop(std::size_t bytes) override { in.pop(bytes); }
  std::size_t pull(std::byte* to, std::size_t bytes) override { return in.pull(to, bytes); }
  void finish() override { in.finish(); }

  void add_to(Counters& counters) const {
    counters.sent_bytes += out.traffic().bytes();
    counters.sent_messages += out.traffic().messages();
    counters.received_bytes += in.traffic().bytes();
    counters.received_messages += in.traffic().messages();
  }

  Outgoing out;
  Incoming in;

 private:
  static LaneKey to(LaneKey key, int receiver) { return {key.communicator, key.channel, receiver}; }
  static PeerBell bell(const ShmPeer& peer) {
    return {&peer.segment->control().doorbell, peer.event_fd->get()};
  }
  static Borrower borrower(int self, const ShmPeer& peer) {
    return {peer.segment->control().readable(self), peer.memory.is_own()};
  }
};

ShmEndpoint::ShmEndpoint(int self, LaneStore& own, Lending& lending, ShmPeer peer, const char* transport)
    : self_(self), own_(own), lending_(lending), peer_(std::move(peer)), transport_(transport) {}

ShmEndpoint::~ShmEndpoint() = default;

Lane& ShmEndpoint::lane(std::uint32_t communicator, std::uint16_t channel) {
  std::lock_guard lock(mutex_);
  auto& lane = lanes_[std::uint64_t{communicator} << 16 | channel];
  if (!lane) {
    const LaneKey key{communicator, channel, peer_.rank};
    lane = std::make_unique<ShmLane>(self_, own_, lending_, peer_, key);
  }
  return *lane;
}

void ShmEndpoint::forget(std::uint32_t communicator) {
  std::lock_guard lock(mutex_);
  std::erase_if(lanes_, [&](auto& item) {
    if (item.first >> 16 != communicator) return false;
    item.second->add_to(counters_);
    item.second->out.retire();
    return true;
  });
  close_lanes(*peer_.segment, communicator, self_);
}

void ShmEndpoint::check() {
  if (peer_.pidfd.get() < 0) return;
  pollfd look{peer_.pidfd.get(), POLLIN, 0};
  if (::poll(&look, 1, 0) <= 0) return;
  if (dead_.exchange(true)) throw PeerLostError(peer_.rank, "rank " + std::to_string(peer_.rank) + " died");
}

Counters ShmEndpoint::counters() const {
  std::lock_guard lock(mutex_);
  Counters sum = counters_;
  for (const auto& [key, lane] : lanes_) lane->add_to(sum);
  return sum;
}

}  // namespace pycomm
