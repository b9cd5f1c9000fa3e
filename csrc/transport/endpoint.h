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
  // Descriptors that become readable when something came in, and whether the waiter also waits for room to
  // write; none for shared memory, where the doorbell wakes us. As they were at the end of the last poll.
  struct Watched {
    int descriptor;
    bool write;
    friend bool operator==(const Watched&, const Watched&) = default;
  };
  virtual std::vector<Watched> descriptors() const { return {}; }
  // Grows whenever `descriptors` would give another answer.
  virtual std::uint64_t changes() const { return 0; }
  // Tells the peer what this rank has taken, before this rank turns to something else and nobody drives the
  // endpoint any more. Cheap if the peer knows.
  virtual void acknowledge() {}
  // Tells the peer of a fault; needs no credit. Does nothing where peers read each other's fault records.
  virtual void post_fault(const Fault&) {}
  // The first fault that the peer told us of.
  virtual std::optional<Fault> fault() { return std::nullopt; }
  // Of all lanes so far. A transport whose lanes count for themselves adds them up here.
  virtual Counters counters() const { return counters_; }
  // Of a transport that has links: each, in the order in which they were given; else none.
  virtual std::vector<LinkState> links() const { return {}; }
  // Cuts a link, for drills: what follows is what a lost cable brings. Throws std::invalid_argument.
  virtual void cut(std::size_t) { throw std::invalid_argument("this transport has no links"); }

 protected:
  Counters counters_;
};

}  // namespace pycomm
