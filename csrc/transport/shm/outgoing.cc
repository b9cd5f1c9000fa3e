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

constexpr std::size_t kLine = 64;
constexpr std::size_t kPrefetched = 1024;  // about as many lines as a core can ask for at a time

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
  accept(envelope);
  if (left_ > 0) return true;  // the envelope goes with the first slice
  publish_slice();
  peer_.ring();
  return true;
}

void Outgoing::accept(const Envelope& envelope) {
  step_ = envelope.sequence - envelope_.sequence;
  envelope_ = envelope;
  left_ = envelope.bytes;
  traffic_.add_message();
}

// Whether what is left of the message is a short slice.
bool Outgoing::fits_inline() const {
  return left_ <= kInlineBytes && (left_ < envelope_.bytes || step_ < kNear);
}

bool Outgoing::send(const Envelope& envelope, const std::byte* data) {
  if (envelope.bytes > kSmallBytes || left_ != 0 || use_.block == nullptr || !room(kSlots)) return false;
  accept(envelope);
  std::byte* const to = fits_inline() ? slot().payload : long_payload(*use_.block, sent_, left_);
  if (left_ > 0) std::memcpy(to, data, left_);
  filled_ = left_;
  publish_slice();
  traffic_.add_bytes(envelope.bytes);
  return true;
}

void Outgoing::ring() {
  peer_.ring();
  if (use_.block == nullptr) return;
  // The peer has copies of the next slot's lines since it last read them. Taking those back now, while nobody
  // waits, makes the stores of a message like the last one short.
  prefetch_to_write(&slot());
  if (envelope_.bytes <= kInlineBytes) return;
  const std::byte* const payload = long_payload(*use_.block, sent_, 0);
  for (std::size_t at = 0; at < std::min<std::size_t>(envelope_.bytes, kPrefetched); at += kLine)
    prefetch_to_write(payload + at);
}

std::size_t Outgoing::push(const std::byte* data, std::size_t bytes) {
  std::size_t pushed = 0;
  while (pushed < bytes && left_ > 0) {
    if (slice_ == nullptr && !open_slice()) break;
    const std::uint64_t most = left_ <= kSmallBytes ? left_ : std::min<std::uint64_t>(left_, kBigBytes);
    const std::size_t part = std::min<std::size_t>(bytes - pushed, most - filled_);
    std::memcpy(slice_ + filled_, data + pushed, part);
    pushed += part;
    filled_ += part;
    if (filled_ < most && (filled_ < kLeastSlice || filled_ % kElementBytes != 0)) continue;
    publish_slice();
    peer_.ring();
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
  slice_ = fits_inline() ? slot().payload : long_payload(*use_.block, sent_, left_);
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
  if (fits_inline()) {
    stamp(filled_);
    left_ = 0;
  } else {
    publish_long(filled_, 0);
  }
  slice_ = nullptr;
  filled_ = 0;
}

void Outgoing::publish_long(std::uint64_t bytes, std::uint64_t address) {
  slot().long_slice = {envelope_.sequence, envelope_.bytes, bytes, address};
  stamp(kLong);
  left_ -= bytes & ~kLent;
}

void Outgoing::stamp(std::uint64_t length) {
  slot().fingerprint = envelope_.fingerprint;  // the line is ours: cheaper than to ask whether it is needed
  std::atomic<std::uint64_t>& stamp = slot().stamp;
  stamp.store(Stamp::of(use_.generation, ++sent_, length, envelope_.sequence).bits,
              std::memory_order_release);
}

std::size_t Outgoing::lend(const std::byte* data, std::size_t bytes) {
  if (bytes < kLeastLoan || envelope_.bytes < lending_.least_bytes.load(std::memory_order_relaxed)) return 0;
  std::size_t lent = std::min<std::uint64_t>(bytes, left_ - filled_);
  if (lent < left_ - filled_) lent -= lent % kElementBytes;
  if (lent == 0 || filled_ % kElementBytes != 0 || !can_lend(data, lent)) return 0;
  if (slice_ != nullptr) {
    publish_slice();
    peer_.ring();
  }
  if (!room(kSlots)) return 0;
  publish_long(lent | kLent, reinterpret_cast<std::uint64_t>(data));
  peer_.ring();
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
