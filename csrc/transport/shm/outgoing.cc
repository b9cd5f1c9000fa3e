#include "transport/shm/outgoing.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "transport/endpoint.h"
#include "transport/shm/peer_memory.h"

namespace pycomm {
namespace {

// Asks for a cache line in the state in which it can be written.
void prefetch_to_write(const void* line) {
#ifdef __x86_64__
  // What __builtin_prefetch makes of it only with -mprfchw; processors without the instruction ignore it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace

bool Outgoing::begin(const Envelope& envelope) {
  if (left_ != 0) throw std::logic_error("begin: the message before is not complete");
  if (use_.block == nullptr) use_ = store_.take(key_);
  if (envelope.bytes == 0 && !room(kSlots)) return false;
  envelope_ = envelope;
  left_ = envelope.bytes;
  traffic_.add_message();
  if (left_ == 0) publish_slice();  // else the envelope goes with the first slice
  return true;
}

bool Outgoing::send(const Envelope& envelope, const std::byte* data) {
  if (envelope.bytes > kSmallBytes || use_.block == nullptr || !room(kSlots)) return false;
  if (envelope.bytes > 0) std::memcpy(payload_of(*use_.block, sent_, envelope.bytes), data, envelope.bytes);
  envelope_ = envelope;
  fill(use_.block->slots[sent_ % kSlots], envelope.bytes);
  traffic_.add_message();
  traffic_.add_bytes(envelope.bytes);
  return true;
}

void Outgoing::ring() {
  peer_.ring();
  // The peer has a copy of the next slot's line since it last read it. Taking that back now, while nobody
  // waits, makes the next message's store a short one.
  if (use_.block != nullptr) prefetch_to_write(&use_.block->slots[sent_ % kSlots]);
}

std::size_t Outgoing::push(const std::byte* data, std::size_t bytes) {
  std::size_t pushed = 0;
  while (pushed < bytes && left_ > 0) {
    if (slice_ == nullptr && !open_slice()) break;
    const std::uint64_t most = std::min<std::uint64_t>(left_, room_of(left_));
    const std::size_t part = std::min<std::size_t>(bytes - pushed, most - filled_);
    std::memcpy(slice_ + filled_, data + pushed, part);
    pushed += part;
    filled_ += part;
    if (filled_ == most || (filled_ >= kLeastSlice && filled_ % kElementBytes == 0)) publish_slice();
  }
  traffic_.add_bytes(pushed);
  return pushed;
}

bool Outgoing::open_slice() {
  const bool big = left_ > kSmallBytes;
  if (!room(big ? kBigSlots : kSlots)) return false;
  if (big && !big_) {
    store_.allocate_big(*use_.block);
    big_ = true;
  }
  slice_ = payload_of(*use_.block, sent_, left_);
  filled_ = 0;
  return true;
}

// True when fewer than `slots` slices are with the receiver.
bool Outgoing::room(std::uint32_t slots) {
  if (sent_ - taken_ < slots) return true;
  look_at_credit();
  return sent_ - taken_ < slots;
}

void Outgoing::look_at_credit() {
  const std::uint32_t taken = use_.block->credit.taken.load(std::memory_order_acquire);
  if (sent_ - taken > sent_ - taken_) {
    throw PeerLostError(key_.receiver,
                        "rank " + std::to_string(key_.receiver) +
                            " gave back slices that it never got: its shared memory is corrupt");
  }
  taken_ = taken;
}

// The slice that was filled.
void Outgoing::publish_slice() {
  publish(use_.block->slots[sent_ % kSlots], filled_);
  left_ -= filled_;
  slice_ = nullptr;
  filled_ = 0;
}

void Outgoing::publish(Slot& slot, std::uint64_t bytes) {
  fill(slot, bytes);
  peer_.ring();
}

void Outgoing::fill(Slot& slot, std::uint64_t bytes) {
  slot.envelope = envelope_;  // the line is ours already: cheaper than to ask whether this slice is the first
  slot.bytes = bytes;
  slot.stamp.store(stamp_of(use_.generation, ++sent_), std::memory_order_release);
}

std::size_t Outgoing::lend(const std::byte* data, std::size_t bytes) {
  if (bytes < kLeastLoan || envelope_.bytes < lending_.least_bytes.load(std::memory_order_relaxed)) return 0;
  std::size_t lent = std::min<std::uint64_t>(bytes, left_ - filled_);
  if (lent < left_ - filled_) lent -= lent % kElementBytes;
  if (lent == 0 || filled_ % kElementBytes != 0 || !can_lend(data, lent)) return 0;
  if (slice_ != nullptr) publish_slice();
  if (!room(kSlots)) return 0;
  Slot& slot = use_.block->slots[sent_ % kSlots];
  const auto address = reinterpret_cast<std::uint64_t>(data);
  std::memcpy(slot.payload, &address, sizeof(address));
  publish(slot, lent | kLent);
  left_ -= lent;
  lent_ = true;
  lent_to_ = sent_;
  traffic_.add_bytes(lent);
  return lent;
}

bool Outgoing::can_lend(const std::byte* data, std::size_t bytes) {
  if (borrower_.reads == nullptr || borrower_.reads->load(std::memory_order_acquire) == 0) return false;
  if (borrower_.is_thread || (data >= lendable_ && data + bytes <= lendable_end_)) return true;
  if (!lendable(data, bytes)) return false;
  lendable_ = data;
  lendable_end_ = data + bytes;
  return true;
}

bool Outgoing::released() {
  if (!lent_) return true;
  look_at_credit();
  lent_ = static_cast<std::int32_t>(taken_ - lent_to_) < 0;
  return !lent_;
}

void Outgoing::recall() {
  if (!lent_) return;
  use_.block->recall.generation.store(use_.generation);
  full_fence();  // before what the user stores there next
  if (!borrower_.is_thread) return;
  while (use_.block->reading.busy.load() != 0) sched_yield();
}

void Outgoing::retire() {
  if (use_.block != nullptr) store_.retire(use_);
  use_ = {};
}

}  // namespace pycomm
