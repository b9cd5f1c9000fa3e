// A fabric: everything one rank needs to reach the others: its segment, doorbell, waiter and endpoints.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/descriptor.h"
#include "transport/endpoint.h"
#include "transport/shm/directory.h"
#include "transport/shm/lending.h"
#include "transport/shm/peer_memory.h"
#include "transport/shm/segment.h"
#include "transport/wait.h"

namespace pycomm {

struct ShmPeer;

// Thread-safe. After a fork only the parent may use it.
class Fabric {
 public:
  // `rank` of `size` in the job. Makes the memfd segment and the eventfd. Throws SegmentError,
  // std::system_error.
  Fabric(int rank, int size);
  // Ranks as threads of one process over private memory: the shared-memory transport without processes, for
  // tests.
  static std::vector<std::shared_ptr<Fabric>> in_memory(int size);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(endpoints_.size()); }
  int segment_fd() const { return segment_->fd(); }
  int event_fd() const { return event_fd_->get(); }

  // Take ownership of the descriptors, also when they throw. `pidfd` may be -1 (liveness then rests on
  // deadlines). One connection to a peer: std::logic_error for the second. SegmentError when `segment_fd` is
  // not the peer's.
  void add_shm(int peer, int segment_fd, int event_fd, int pidfd);
  void add_tcp(int peer, const std::vector<int>& socket_fds);
  bool connected(int peer) const;
  // Throws std::logic_error when there is none: connections are made when a plan is.
  Endpoint& endpoint(int peer);
  // From how many bytes on a message to a peer on this node stays in the sender's memory, for the receiver to
  // copy from there, where it can. Before it is set, all are copied through shared memory.
  void set_single_copy(std::uint64_t least_bytes) { lending_.least_bytes = least_bytes; }
  // Why this rank cannot read the memory of a peer on this node, for people; empty where it can.
  std::string why_not_single_copy(int peer);
  Counters counters(int peer) { return endpoint(peer).counters(); }
  std::vector<LinkState> links(int peer) { return endpoint(peer).links(); }
  void cut_link(int peer, std::size_t link) { endpoint(peer).cut(link); }

  Segment& segment() { return *segment_; }
  // Segment of a peer on this node, or nullptr: its arrival line and fault record can be read there.
  Segment* segment_of(int peer);
  Waiter& waiter() { return waiter_; }

  // Drives every endpoint that needs driving (sockets). True if anything moved. One load when there are none.
  // A peer that is lost is left alone from then on: who needs it is told by its lanes and by check().
  bool poll();
  // Tells peers what this rank has taken from them, before a call returns and nobody drives their endpoints.
  void acknowledge();
  // Whether polling again at once is worth it: peers have CPUs of their own, and a poll makes no system
  // calls.
  bool spins() const { return waiter_.spins() && driven_count_.load(std::memory_order_relaxed) == 0; }
  // Looks at every peer's life. Throws PeerLostError.
  void check();
  void forget(std::uint32_t communicator);

 private:
  struct Driven {
    Endpoint* endpoint = nullptr;
    std::mutex mutex;                        // so that the waiter is told the newest
    std::vector<Endpoint::Watched> watched;  // as the waiter was told
    std::atomic<std::uint64_t> changes{0};   // of the endpoint, by then
    std::atomic<bool> lost{false};
  };

  Fabric(int rank, int size, std::shared_ptr<Segment> segment);
  void require_free(int peer) const;
  void add_thread(int peer, const Fabric& other);
  bool drive(Driven& driven);
  void add_neighbour(ShmPeer&& how, const char* transport);
  void watch(Driven& driven, std::vector<Endpoint::Watched> descriptors);
  std::vector<Endpoint*> all() const;

  const int rank_;
  const MemoryToken token_;
  const std::shared_ptr<const Descriptor> event_fd_;
  const std::shared_ptr<Segment> segment_;
  LaneStore lanes_;
  Lending lending_;
  Waiter waiter_;
  mutable std::mutex mutex_;                             // of the two lists that follow
  std::vector<std::shared_ptr<Segment>> peer_segments_;  // by peer, like the next; null where there is none
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<Driven> driven_;  // the first `driven_count_` are in use, and stay as they are
  std::atomic<int> driven_count_{0};
};

}  // namespace pycomm
