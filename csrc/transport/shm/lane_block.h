// The memory of one lane in one direction: a ring of slots from one sender to one receiver, in the sender's
// segment.
//
// A slice is copied into the lane, or it is *lent*: its slot then says where it lies in the sender's memory,
// and the receiver reads it there, so that it is copied once (single copy; see peer_memory.h for how). The
// sender chooses for each slice, and says so in the slot. A loan ends in one of two ways:
//
//   read      The receiver counts the slice in Credit::taken (release) after it has read the last byte; the
//             sender, which looks (acquire), may then overwrite it.
//   recalled  A sender whose call failed stores the lane's generation in Recall (seq_cst), fences, and gives
//             the memory back to its user without waiting for the receiver, who may be stopped. The receiver
//             looks at Recall after each piece that it has read (fence, load), before it counts or
//             uses a byte of it. A piece that was found not to be recalled was read before whatever the
//             sender's user stored later; any other is an error (this is a sequence lock, and a kernel or
//             memcpy that races with the user's stores is the reader that it allows to read rubbish).
//
// Between threads of one process that race would be one on plain memory, and a thread's copy always ends: so
// the receiver also sets Reading (seq_cst) around a piece and looks at Recall in between, and there the
// sender waits until Reading is clear (seq_cst, after its store to Recall). As in Dekker's algorithm, either
// the receiver sees that the loan is recalled, or the sender sees that it is being read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/lane.h"

namespace pycomm {

// A message travels as slices, one to a slot. What is left of it when a slice begins says where that slice
// lies: up to kInlineBytes in the cache line of its header; up to kSmallBytes in a page of its own, so that
// the many small messages of a lane stay in few warm pages; else in one of the big areas, whose memory the
// system is asked for when the first such slice comes. Only a big slice can be less than what is left. 4 x
// 128 KiB did best among 32 KiB ... 1 MiB on a machine with 2 MiB of L2 to a core.
inline constexpr std::uint32_t kSlots = 8;
inline constexpr std::uint32_t kBigSlots = 4;  // slot s uses big area s % kBigSlots
inline constexpr std::size_t kInlineBytes = 24;
inline constexpr std::size_t kSmallBytes = 4096;
inline constexpr std::size_t kBigBytes = 128 << 10;
inline constexpr std::size_t kElementBytes = 8;  // a slice that is not its message's last is a multiple of it
inline constexpr std::uint64_t kLent = std::uint64_t{1} << 63;  // added to the bytes of a slice that is lent

struct alignas(64) Slot {
  // Generation of the lane << 32 | count of slices up to and with this one (mod 2^32). Written last, so a
  // slot is readable when this is the value expected; a slot of the lane's former use never is.
  std::atomic<std::uint64_t> stamp{0};
  Envelope envelope;                // valid in the first slice of a message
  std::uint64_t bytes{0};           // in this slice, and kLent
  std::byte payload[kInlineBytes];  // of a lent slice: its address in the sender's process, 8 bytes
};
static_assert(sizeof(Slot) == 64);

// Written by the receiver.
struct alignas(64) Credit {
  std::atomic<std::uint32_t> taken{0};  // slices given back so far (mod 2^32)
  std::atomic<std::uint32_t> closed{
      0};  // generation that the receiver has done with; it touches the lane no more
};

// Written by the sender.
struct alignas(64) Recall {
  std::atomic<std::uint32_t> generation{0};  // whose loans are void
};

// Written by the receiver.
struct alignas(64) Reading {
  std::atomic<std::uint32_t> busy{0};  // 1: it is copying from lent memory
};

// Areas are staggered by odd numbers of cache lines, or equal offsets in all areas would meet in the same
// cache sets; so are the lanes themselves, by their size.
struct alignas(64) LaneBlock {
  Credit credit;
  Recall recall;
  Reading reading;
  Slot slots[kSlots];
  struct alignas(64) {
    std::byte data[kSmallBytes + 64];
  } small[kSlots];
  struct alignas(64) {
    std::byte data[kBigBytes + 5 * 64];
  } big[kBigSlots];
};
static_assert(sizeof(LaneBlock) / 64 % 2 == 1);

inline std::uint64_t stamp_of(std::uint32_t generation, std::uint32_t slices) {
  return std::uint64_t{generation} << 32 | slices;
}

// The most that a slice can hold when so much of its message is left.
inline std::size_t room_of(std::uint64_t left) {
  return left <= kInlineBytes ? kInlineBytes : left <= kSmallBytes ? kSmallBytes : kBigBytes;
}

// Where slice number `slice` lies when so much of its message is left.
inline std::byte* payload_of(LaneBlock& block, std::uint32_t slice, std::uint64_t left) {
  if (left <= kInlineBytes) return block.slots[slice % kSlots].payload;
  if (left <= kSmallBytes) return block.small[slice % kSlots].data;
  return block.big[slice % kBigSlots].data;
}

}  // namespace pycomm
