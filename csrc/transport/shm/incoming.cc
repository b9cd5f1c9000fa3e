#include "transport/shm/incoming.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "transport/endpoint.h"
#include "transport/shm/stream_copy.h"

namespace pycomm {

// Credit for small slices is returned when so many have come together: it costs a fence. Less than kBigSlots,
// so that a sender that waits with a big slice always waits for one that we have not read.
constexpr std::uint32_t kReturned = 4;
// Messages at least so long are stored past the caches: of an array that two ranks share out in halves of
// this size little would stay in them. At half of it that lost as much as it wins here.
constexpr std::uint64_t kStreamBytes = 32 << 20;
static_assert(kReturned <= kBigSlots && kReturned <= kSlots);

static void copy(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

const Envelope* Incoming::head() { return open_ || open_message() ? &envelope_ : nullptr; }

bool Incoming::find() {
  const std::uint32_t changes = segment_.control().directory.changes.load(std::memory_order_acquire);
  if (looked_ && changes == looked_at_) return false;
  looked_ = true;
  looked_at_ = changes;
  const auto found = find_lane(segment_, key_);
  if (found) use_ = *found;
  return found.has_value();
}

// True when the next slice has been published.
bool Incoming::ready() const {
  const Slot& slot = use_.block->slots[taken_ % kSlots];
  return slot.stamp.load(std::memory_order_acquire) == stamp_of(use_.generation, taken_ + 1);
}

bool Incoming::open_message() {
  if ((use_.block == nullptr && !find()) || !ready()) return false;
  envelope_ = use_.block->slots[taken_ % kSlots].envelope;
  left_ = envelope_.bytes;
  open_slice();
  open_ = true;
  return true;
}

// Takes the size of the slice from the slot, once, and checks it.
void Incoming::open_slice() {
  const std::uint64_t bytes = use_.block->slots[taken_ % kSlots].bytes;
  big_ = left_ > kSmallBytes;
  const bool part =
      big_ && bytes > 0 && bytes <= std::min<std::uint64_t>(left_, kBigBytes) && bytes % kElementBytes == 0;
  if (!part && (bytes != left_ || bytes > kBigBytes)) {
    throw PeerLostError(sender_, "rank " + std::to_string(sender_) + " announced a slice of " +
                                     std::to_string(bytes) + " bytes in a message that has " +
                                     std::to_string(left_) + " left: its shared memory is corrupt");
  }
  slice_ = {payload_of(*use_.block, taken_, left_), bytes};
}

std::span<const std::byte> Incoming::peek() {
  if (slice_.empty() && open_ && left_ > 0 && ready()) open_slice();
  return slice_;
}

void Incoming::pop(std::size_t bytes) {
  if (bytes > slice_.size()) throw std::logic_error("pop: more than peek showed");
  if (bytes == 0) return;
  traffic_.add_bytes(bytes);
  slice_ = slice_.subspan(bytes);
  left_ -= bytes;
  if (slice_.empty()) give_back();
}

std::size_t Incoming::pull(std::byte* to, std::size_t bytes) {
  std::size_t pulled = 0;
  if (head() == nullptr) return 0;
  while (pulled < bytes) {
    const auto seen = peek();
    if (seen.empty()) break;
    const std::size_t part = std::min(seen.size(), bytes - pulled);
    (envelope_.bytes < kStreamBytes ? copy : stream_copy)(to + pulled, seen.data(), part);
    pulled += part;
    pop(part);
  }
  return pulled;
}

void Incoming::finish() {
  if (!open_ || envelope_.bytes != 0) throw std::logic_error("finish: the head is no message without bytes");
  give_back();
}

// The slice at the head was read to its end.
void Incoming::give_back() {
  ++taken_;
  if (left_ == 0) {
    open_ = false;
    traffic_.add_message();
  }
  if (!big_ && taken_ - returned_ < kReturned) return;
  returned_ = taken_;
  use_.block->credit.taken.store(taken_, std::memory_order_release);
  peer_.ring();
}

}  // namespace pycomm
