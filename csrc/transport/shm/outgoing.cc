#include "transport/shm/outgoing.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "transport/endpoint.h"

namespace pycomm {

bool Outgoing::begin(const Envelope& envelope) {
  if (left_ != 0) throw std::logic_error("begin: the message before is not complete");
  if (use_.block == nullptr) use_ = store_.take(key_);
  if (envelope.bytes == 0 && !room(kSlots)) return false;
  envelope_ = envelope;
  left_ = envelope.bytes;
  traffic_.add_message();
  if (left_ == 0) publish();  // else the envelope goes with the first slice
  return true;
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
    if (filled_ == most || (filled_ >= kLeastSlice && filled_ % kElementBytes == 0)) publish();
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
  const std::uint32_t taken = use_.block->credit.taken.load(std::memory_order_acquire);
  if (sent_ - taken > sent_ - taken_) {
    throw PeerLostError(key_.receiver,
                        "rank " + std::to_string(key_.receiver) +
                            " gave back slices that it never got: its shared memory is corrupt");
  }
  taken_ = taken;
  return sent_ - taken_ < slots;
}

void Outgoing::publish() {
  Slot& slot = use_.block->slots[sent_ % kSlots];
  slot.envelope = envelope_;  // the line is ours already: cheaper than to ask whether this slice is the first
  slot.bytes = filled_;
  slot.stamp.store(stamp_of(use_.generation, ++sent_), std::memory_order_release);
  left_ -= filled_;
  slice_ = nullptr;
  filled_ = 0;
  peer_.ring();
}

void Outgoing::retire() {
  if (use_.block != nullptr) store_.retire(use_);
  use_ = {};
}

}  // namespace pycomm
