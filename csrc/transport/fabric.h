// A fabric: everything one rank needs to reach the others: its segment, doorbell, waiter and endpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/endpoint.h"
#include "transport/shm/segment.h"
#include "transport/wait.h"

namespace pycomm {

class Fabric {
 public:
  // `rank` of `size` in the job. Makes the memfd segment and the eventfd.
  Fabric(int rank, int size);
  // Ranks as threads of one process over private memory: the shared-memory transport without processes, for tests.
  static std::vector<std::shared_ptr<Fabric>> in_memory(int size);
  ~Fabric();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(endpoints_.size()); }
  int segment_fd() const;
  int event_fd() const { return event_fd_; }

  // Takes ownership of the descriptors. `pidfd` may be -1 (liveness then rests on deadlines).
  void add_shm(int peer, int segment_fd, int event_fd, int pidfd);
  void add_tcp(int peer, int socket_fd);
  bool connected(int peer) const;
  // Throws std::logic_error when there is none: connections are made when a plan is.
  Endpoint& endpoint(int peer);

  Segment& segment() { return *segment_; }
  // Segment of a peer on this node, or nullptr: its arrival line and fault record can be read there.
  Segment* segment_of(int peer);
  Waiter& waiter() { return *waiter_; }

  // Drives every endpoint that needs driving (sockets). True if anything moved.
  bool poll();
  // Looks at every peer's life. Throws PeerLostError.
  void check();
  void forget(std::uint32_t communicator);

 private:
  Fabric(int rank, int size, std::unique_ptr<Segment> segment);

  int rank_;
  int event_fd_ = -1;
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<Waiter> waiter_;
  std::vector<std::shared_ptr<Segment>> peer_segments_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;  // by peer; null where there is none (yet)
  std::vector<Endpoint*> polled_;
  mutable std::mutex mutex_;                          // of the two lists above
};

}  // namespace pycomm
