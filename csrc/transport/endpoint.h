// An endpoint: one ordered reliable path to one peer, made of lanes. A fabric: all endpoints of one process.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "transport/fault.h"
#include "transport/lane.h"

namespace pycomm {

// Why a peer can no longer be heard. Thrown by Endpoint::poll and by any lane call on a lost peer.
struct PeerLostError : std::runtime_error {
  PeerLostError(int peer, const std::string& why) : std::runtime_error(why), peer(peer) {}
  int peer;  // rank in the job
};

struct Counters {
  std::uint64_t sent_bytes = 0;      // payload, as accepted by lanes
  std::uint64_t received_bytes = 0;  // payload, as taken from lanes
  std::uint64_t sent_messages = 0;
  std::uint64_t received_messages = 0;
};

// One link of an endpoint: a connection over one pair of NICs.
struct LinkState {
  std::uint64_t sent_bytes = 0;      // payload, as given to this link
  std::uint64_t received_bytes = 0;  // payload, as it came over this link
  std::string lost;                  // why it is gone; empty while it lives
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // "shm", "tcp", "memory"
  virtual const char* transport() const = 0;
  // The lane of a communicator's channel; made when first asked for. The reference stays valid until
  // `forget`.
  virtual Lane& lane(std::uint32_t communicator, std::uint16_t channel) = 0;
  // Gives back all lanes of a closed communicator.
  virtual void forget(std::uint32_t communicator) = 0;
  // Moves what can move now, on all lanes. True if anything did. Throws PeerLostError.
  virtual bool poll() = 0;
  // A look at whether the peer is alive that may cost a system call; the waiting loop calls it now and then.
  virtual void check() = 0;
  // A descriptor that becomes readable when something came in, or -1 (shared memory: the doorbell wakes us).
  virtual int descriptor() const = 0;
  // True when output is stuck for want of room in the socket, so that the waiter also waits for writability.
  virtual bool wants_write() const = 0;
  // Tells the peer of a fault; needs no credit. Does nothing where peers read each other's fault records.
  virtual void post_fault(const Fault&) {}
  // The first fault that the peer told us of.
  virtual std::optional<Fault> fault() { return std::nullopt; }
  // Of all lanes so far. A transport whose lanes count for themselves adds them up here.
  virtual Counters counters() const { return counters_; }
  // Of a transport that has links: each, in the order in which they were given; else none.
  virtual std::vector<LinkState> links() const { return {}; }

 protected:
  Counters counters_;
};

}  // namespace pycomm
