// The endpoint over shared memory: each side writes into its own segment and reads from the peer's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "transport/descriptor.h"
#include "transport/endpoint.h"
#include "transport/shm/directory.h"
#include "transport/shm/lending.h"
#include "transport/shm/peer_memory.h"

namespace pycomm {

// What is needed to talk to a peer on this node.
struct ShmPeer {
  int rank = 0;  // in the job
  std::shared_ptr<Segment> segment;
  std::shared_ptr<const Descriptor> event_fd;  // ranks as threads share one descriptor
  Descriptor pidfd;  // none: a thread of this process, or not to be had; liveness then rests on deadlines
  PeerMemory memory;
};

class ShmLane;

// lane, forget, check and counters are thread-safe; each lane is for one thread at a time.
class ShmEndpoint final : public Endpoint {
 public:
  // `own`, the segment behind it and `lending` must outlive the endpoint.
  ShmEndpoint(int self, LaneStore& own, Lending& lending, ShmPeer peer, const char* transport);
  ~ShmEndpoint() override;

  const char* transport() const override { return transport_; }
  Lane& lane(std::uint32_t communicator, std::uint16_t channel) override;
  void forget(std::uint32_t communicator) override;
  // Lanes move bytes themselves.
  bool poll() override { return false; }
  // Throws PeerLostError at the second look that finds the peer dead: what it published before it died is
  // there to be taken between the two.
  void check() override;
  Counters counters() const override;
  const PeerMemory& memory() const { return peer_.memory; }

 private:
  const int self_;
  LaneStore& own_;
  Lending& lending_;
  const ShmPeer peer_;
  const char* const transport_;
  std::atomic<bool> dead_{false};
  mutable std::mutex mutex_;  // of the lanes, and of what forgotten ones counted
  std::unordered_map<std::uint64_t, std::unique_ptr<ShmLane>> lanes_;  // by communicator << 16 | channel
};

}  // namespace pycomm
