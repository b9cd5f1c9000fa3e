#include "transport/fabric.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "transport/shm/endpoint.h"
#include "transport/tcp/endpoint.h"

namespace pycomm {

namespace {

std::shared_ptr<const Descriptor> make_event_fd() {
  auto fd = std::make_shared<const Descriptor>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (fd->get() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return fd;
}

}  // namespace

Fabric::Fabric(int rank, int size) : Fabric(rank, size, Segment::create(rank)) {}

Fabric::Fabric(int rank, int size, std::shared_ptr<Segment> segment)
    : rank_(rank),
      event_fd_(make_event_fd()),
      segment_(std::move(segment)),
      lanes_(*segment_),
      waiter_(segment_->control().doorbell, event_fd_->get()),
      peer_segments_(static_cast<std::size_t>(size)),
      endpoints_(static_cast<std::size_t>(size)),
      driven_(static_cast<std::size_t>(size)) {
  segment_->control().token = token_.place();
}

std::vector<std::shared_ptr<Fabric>> Fabric::in_memory(int size) {
  std::vector<std::shared_ptr<Fabric>> fabrics;
  for (int rank = 0; rank < size; ++rank) {
    fabrics.emplace_back(new Fabric(rank, size, Segment::create_private(rank)));
  }
  for (auto& fabric : fabrics) {
    for (auto& other : fabrics) {
      if (other != fabric) fabric->add_thread(other->rank(), *other);
    }
  }
  return fabrics;
}

Fabric::~Fabric() = default;

void Fabric::require_free(int peer) const {
  if (peer < 0 || peer >= size() || peer == rank_) {
    throw std::logic_error("rank " + std::to_string(rank_) + " of " + std::to_string(size()) +
                           " cannot have a connection to rank " + std::to_string(peer));
  }
  if (endpoints_[static_cast<std::size_t>(peer)]) {
    throw std::logic_error("rank " + std::to_string(rank_) + " has a connection to rank " +
                           std::to_string(peer) + " already");
  }
}

void Fabric::add_shm(int peer, int segment_fd, int event_fd, int pidfd) {
  ShmPeer how{peer, nullptr, std::make_shared<const Descriptor>(event_fd), Descriptor(pidfd), {}};
  how.segment = Segment::map(segment_fd);
  if (const int owner = how.segment->control().rank; owner != peer) {
    throw SegmentError("rank " + std::to_string(peer) + " handed over the segment of rank " +
                       std::to_string(owner));
  }
  how.memory = PeerMemory::of_process(pidfd, how.segment->control().token);
  add_neighbour(std::move(how), "shm");
}

// The peer's segment is mapped once for both, so that tools which follow addresses see that the ranks share
// it; so is its eventfd open once, or n ranks would need n * n descriptors.
void Fabric::add_thread(int peer, const Fabric& other) {
  add_neighbour({peer, other.segment_, other.event_fd_, Descriptor(), PeerMemory::same_process()}, "memory");
}

void Fabric::add_neighbour(ShmPeer&& how, const char* transport) {
  const int peer = how.rank;
  std::lock_guard lock(mutex_);
  require_free(peer);
  const auto at = static_cast<std::size_t>(peer);
  peer_segments_[at] = how.segment;
  auto* readable = segment_->control().readable(peer);
  if (readable != nullptr) readable->store(how.memory.readable(), std::memory_order_release);
  endpoints_[at] = std::make_unique<ShmEndpoint>(rank_, lanes_, lending_, std::move(how), transport);
}

std::string Fabric::why_not_single_copy(int peer) {
  const auto* neighbour = dynamic_cast<ShmEndpoint*>(&endpoint(peer));
  return neighbour == nullptr ? "it is on another node" : neighbour->memory().why_not();
}

void Fabric::add_tcp(int peer, const std::vector<int>& socket_fds) {
  auto endpoint = make_tcp_endpoint(peer, socket_fds);
  std::lock_guard lock(mutex_);
  require_free(peer);
  const int count = driven_count_.load(std::memory_order_relaxed);
  Driven& driven = driven_[static_cast<std::size_t>(count)];
  driven.endpoint = endpoint.get();
  watch(driven, endpoint->descriptors());
  endpoints_[static_cast<std::size_t>(peer)] = std::move(endpoint);
  driven_count_.store(count + 1, std::memory_order_release);
}

bool Fabric::connected(int peer) const {
  std::lock_guard lock(mutex_);
  return peer >= 0 && peer < size() && endpoints_[static_cast<std::size_t>(peer)] != nullptr;
}

Endpoint& Fabric::endpoint(int peer) {
  if (!connected(peer)) {
    throw std::logic_error("rank " + std::to_string(rank_) + " has no connection to rank " +
                           std::to_string(peer));
  }
  std::lock_guard lock(mutex_);
  return *endpoints_[static_cast<std::size_t>(peer)];
}

Segment* Fabric::segment_of(int peer) {
  std::lock_guard lock(mutex_);
  return peer >= 0 && peer < size() ? peer_segments_[static_cast<std::size_t>(peer)].get() : nullptr;
}

bool Fabric::poll() {
  const int count = driven_count_.load(std::memory_order_acquire);
  if (count == 0) return false;
  bool moved = false;
  for (int i = 0; i < count; ++i) moved |= drive(driven_[static_cast<std::size_t>(i)]);
  // What came in may be for another thread of this rank that sleeps, and it is no longer in the socket to
  // wake it.
  if (moved) ring(segment_->control().doorbell, event_fd());
  return moved;
}

bool Fabric::drive(Driven& driven) {
  if (driven.lost.load(std::memory_order_relaxed)) return false;
  Endpoint& endpoint = *driven.endpoint;
  try {
    const bool moved = endpoint.poll();
    if (endpoint.changes() != driven.changes.load(std::memory_order_relaxed)) {
      std::lock_guard lock(driven.mutex);
      driven.changes.store(endpoint.changes(), std::memory_order_relaxed);
      watch(driven, endpoint.descriptors());
    }
    return moved;
  } catch (const PeerLostError&) {
    // For who needs that peer to find out, by its lanes or by check(); others go on.
    driven.lost = true;
    std::lock_guard lock(driven.mutex);
    watch(driven, {});
    return true;
  }
}

// Tells the waiter what has changed.
void Fabric::watch(Driven& driven, std::vector<Endpoint::Watched> descriptors) {
  const auto find = [](std::vector<Endpoint::Watched>& list, int descriptor) {
    return std::ranges::find(list, descriptor, &Endpoint::Watched::descriptor);
  };
  for (const auto& old : driven.watched)
    if (find(descriptors, old.descriptor) == descriptors.end()) waiter_.remove_descriptor(old.descriptor);
  for (const auto& now : descriptors) {
    const auto old = find(driven.watched, now.descriptor);
    if (old == driven.watched.end()) waiter_.add_descriptor(now.descriptor);
    if (old == driven.watched.end() ? now.write : now.write != old->write)
      waiter_.want_write(now.descriptor, now.write);
  }
  driven.watched = std::move(descriptors);
}

void Fabric::acknowledge() {
  const int count = driven_count_.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) driven_[static_cast<std::size_t>(i)].endpoint->acknowledge();
}

// The endpoints that exist now; they live as long as the fabric.
std::vector<Endpoint*> Fabric::all() const {
  std::lock_guard lock(mutex_);
  std::vector<Endpoint*> found;
  for (const auto& endpoint : endpoints_) {
    if (endpoint) found.push_back(endpoint.get());
  }
  return found;
}

void Fabric::check() {
  for (Endpoint* endpoint : all()) endpoint->check();
}

void Fabric::forget(std::uint32_t communicator) {
  for (Endpoint* endpoint : all()) endpoint->forget(communicator);
}

}  // namespace pycomm
