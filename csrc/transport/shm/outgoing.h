// The sending half of a shared-memory lane.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/lane.h"
#include "transport/shm/directory.h"
#include "transport/shm/lane_traffic.h"
#include "transport/shm/lending.h"

namespace pycomm {

// How the peer is woken.
struct PeerBell {
  Doorbell* doorbell = nullptr;
  int event_fd = -1;

  void ring() const { pycomm::ring(*doorbell, event_fd); }
};

// Forwarded data comes in crumbs; they are collected up to this much.
inline constexpr std::size_t kLeastSlice = 4096;
// Smaller pieces are copied, in whatever message: reading one in the sender's memory is a system call of 0.7
// us, as long as it takes to copy some 20 KiB.
inline constexpr std::size_t kLeastLoan = 32768;

// What the receiver can do with what is lent to it.
struct Borrower {
  const std::atomic<std::uint32_t>* reads = nullptr;  // not 0: it can read our memory
  bool is_thread = false;                             // of this process
};

// Copies messages into the slots of a block of one's own segment, taken from the store at the first message,
// or lends them. For one thread at a time.
class Outgoing {
 public:
  Outgoing(LaneStore& store, const LaneKey& key, const PeerBell& peer, const Lending& lending,
           const Borrower& borrower)
      : store_(store), key_(key), peer_(peer), lending_(lending), borrower_(borrower) {}

  // As in Lane. Takes any number of bytes; a slice is published when it is the message's last, is full, or
  // has at least kLeastSlice bytes and ends with an element.
  bool begin(const Envelope& envelope);
  std::size_t push(const std::byte* data, std::size_t bytes);
  bool send(const Envelope& envelope, const std::byte* data);
  void ring();
  std::size_t lend(const std::byte* data, std::size_t bytes);
  bool released();
  void recall();

  // No more messages: the block goes back to the store.
  void retire();
  const LaneTraffic& traffic() const { return traffic_; }

 private:
  bool room(std::uint32_t slots);
  void look_at_credit();
  void accept(const Envelope& envelope);
  bool fits_inline() const;
  bool open_slice();
  void publish_slice();
  void publish_long(std::uint64_t bytes, std::uint64_t address);
  void stamp(std::uint64_t length);
  Slot& slot() const { return use_.block->slots[sent_ % kSlots]; }
  bool can_lend(const std::byte* data, std::size_t bytes);

  LaneStore& store_;
  const LaneKey key_;
  const PeerBell peer_;
  const Lending& lending_;
  const Borrower borrower_;
  LaneUse use_{};            // no block before the first message
  bool big_ = false;         // the big areas have memory
  std::uint32_t sent_ = 0;   // slices published (mod 2^32)
  std::uint32_t taken_ = 0;  // of these, given back by the receiver when last looked at
  Envelope envelope_{};
  std::uint64_t step_ = 0;      // how far its sequence is from that of the message before
  std::uint64_t left_ = 0;      // bytes of the begun message that are in no published slice
  std::byte* slice_ = nullptr;  // the slice that is being filled, if any
  std::size_t filled_ = 0;      // bytes in it
  bool lent_ = false;           // a loan may be with the receiver still
  std::uint32_t lent_to_ = 0;   // slices published up to and with the last loan (mod 2^32)
  const std::byte *lendable_ = nullptr, *lendable_end_ = nullptr;  // the piece that was tried last
  LaneTraffic traffic_;
};

}  // namespace pycomm
