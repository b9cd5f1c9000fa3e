#include "transport/shm/incoming.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "transport/endpoint.h"
#include "transport/shm/stream_copy.h"
#include "transport/wait.h"

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

// True when the next slice has been published. Takes its stamp, once.
bool Incoming::ready() {
  stamp_.bits = slot().stamp.load(std::memory_order_acquire);
  return stamp_.is(use_.generation, taken_ + 1);
}

bool Incoming::open_message() {
  if ((use_.block == nullptr && !find()) || !ready()) return false;
  if (const std::uint64_t length = stamp_.length(); length != kLong) {
    envelope_ = {slot().fingerprint, stamp_.sequence_after(envelope_.sequence), length};
  } else {
    const LongSlice& slice = slot().long_slice;
    envelope_ = {slot().fingerprint, slice.sequence, slice.message_bytes};
  }
  left_ = envelope_.bytes;
  open_slice();
  open_ = true;
  return true;
}

void Incoming::open_slice() {
  const std::uint64_t length = stamp_.length();
  if (length == kLong) return open_long();
  if (length != left_ || length > kInlineBytes) corrupt(length);
  waited_for_ = false;
  slice_ = {slot().payload, length};
}

// Takes the size of the slice from the slot, once, and checks it.
void Incoming::open_long() {
  const std::uint64_t bytes = slot().long_slice.bytes;
  if ((bytes & kLent) != 0) return open_loan(bytes & ~kLent);
  const bool big = left_ > kSmallBytes;
  const bool part =
      big && bytes > 0 && bytes <= std::min<std::uint64_t>(left_, kBigBytes) && bytes % kElementBytes == 0;
  if (!part && (bytes != left_ || bytes > kBigBytes)) corrupt(bytes);
  waited_for_ = big;
  slice_ = {long_payload(*use_.block, taken_, left_), bytes};
}

void Incoming::open_loan(std::uint64_t bytes) {
  if (bytes == 0 || bytes > left_ || (bytes < left_ && bytes % kElementBytes != 0) || !memory_.readable())
    corrupt(bytes);
  waited_for_ = true;
  lent_ = bytes;
  address_ = slot().long_slice.address;
}

void Incoming::corrupt(std::uint64_t bytes) const {
  throw PeerLostError(sender_, "rank " + std::to_string(sender_) + " announced a slice of " +
                                   std::to_string(bytes) + " bytes in a message that has " +
                                   std::to_string(left_) + " left: its shared memory is corrupt");
}

std::span<const std::byte> Incoming::peek() {
  if (!slice_.empty() || !open_ || left_ == 0) return slice_;
  if (lent_ == 0 && ready()) open_slice();
  if (lent_ > 0) fill_tile();
  return slice_;
}

// As much of what is lent as fits, to the end of an element.
void Incoming::fill_tile() {
  std::size_t bytes = std::min<std::uint64_t>(lent_, kTileBytes);
  if (bytes < lent_) bytes -= (envelope_.bytes - left_ + bytes) % kElementBytes;
  if (!tile_) tile_ = tiles_.take();
  read(tile_->data, bytes);
  slice_ = {tile_->data, bytes};
}

void Incoming::pop(std::size_t bytes) {
  if (bytes > slice_.size()) throw std::logic_error("pop: more than peek showed");
  if (bytes == 0) return;
  slice_ = slice_.subspan(bytes);
  took(bytes);
}

void Incoming::took(std::size_t bytes) {
  traffic_.add_bytes(bytes);
  left_ -= bytes;
  if (!slice_.empty()) return;
  if (tile_) tiles_.give(std::move(tile_));
  if (lent_ == 0) give_back();
}

std::size_t Incoming::pull(std::byte* to, std::size_t bytes) {
  std::size_t pulled = 0;
  if (head() == nullptr) return 0;
  while (pulled < bytes && open_) {
    if (slice_.empty() && lent_ == 0 && left_ > 0 && ready()) open_slice();
    std::size_t part = std::min<std::size_t>(slice_.size(), bytes - pulled);
    if (part > 0) {
      (envelope_.bytes < kStreamBytes ? copy : stream_copy)(to + pulled, slice_.data(), part);
      pop(part);
    } else if (lent_ > 0) {
      part = pull_lent(to + pulled, bytes - pulled);
    }
    if (part == 0) break;
    pulled += part;
  }
  return pulled;
}

std::size_t Incoming::pull_lent(std::byte* to, std::size_t bytes) {
  const std::size_t part = std::min<std::uint64_t>(bytes, lent_);
  read(to, part);
  took(part);
  return part;
}

bool Incoming::recalled() const { return use_.block->recall.generation.load() == use_.generation; }

// The next bytes that are lent. Returns when they are known to be what the sender lent (see lane_block.h).
void Incoming::read(std::byte* to, std::size_t bytes) {
  std::atomic<std::uint32_t>& busy = use_.block->reading.busy;
  busy.store(1);
  bool void_now = recalled();
  int error = 0;
  if (!void_now) {
    error = memory_.read(to, address_, bytes);
    full_fence();
    void_now = recalled();
  }
  busy.store(0, std::memory_order_release);
  const std::string who = "rank " + std::to_string(sender_);
  if (void_now) throw PeerLostError(sender_, who + " took back what it was sending: its call has failed");
  if (error == ESRCH) throw PeerLostError(sender_, who + " died");
  if (error != 0)
    throw PeerLostError(sender_, who + " sends from memory that cannot be read: " + std::strerror(error));
  address_ += bytes;
  lent_ -= bytes;
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
  if (!waited_for_ && taken_ - returned_ < kReturned) return;
  returned_ = taken_;
  use_.block->credit.taken.store(taken_, std::memory_order_release);
  peer_.ring();
}

}  // namespace pycomm
