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

// A message travels as slices, one to a slot. A slice of up to kInlineBytes is *short*: it lies in the slot,
// in the cache line of its stamp, so that a small message is one line that travels. Of any other what is left
// of the message when it begins says where it lies: up to kSmallBytes in a page of its own, so that the many
// small messages of a lane stay in few warm pages; else in one of the big areas, whose memory the system is
// asked for when the first such slice comes. Only a big slice can be less than what is left. 4 x 128 KiB did
// best among 32 KiB ... 1 MiB on a machine with 2 MiB of L2 to a core.
inline constexpr std::uint32_t kSlots = 8;
inline constexpr std::uint32_t kBigSlots = 4;  // slot s uses big area s % kBigSlots
inline constexpr std::size_t kInlineBytes = 48;
inline constexpr std::size_t kSmallBytes = 4096;
inline constexpr std::size_t kBigBytes = 128 << 10;
inline constexpr std::size_t kElementBytes = 8;  // a slice that is not its message's last is a multiple of it
inline constexpr std::uint64_t kLent = std::uint64_t{1} << 63;  // added to the bytes of a slice that is lent

// The stamp of a slot, which is written last: a slot is readable when generation and count are those
// expected.
//   generation  32 bits  of the lane's use: a slot of a former use never is
//   count        8       slices up to and with this one; the slot's slice before this one has another
//   length       8       of a short slice, which is all that is left of its message; else kLong
//   sequence    16       low bits of the envelope's, which on a lane only grows. Both sides know that of the
//                        message before, so a message can begin with a short slice where the two are less
//                        than kNear apart; the receiver then knows all bits (as RFC 9000, A.3, does it for
//                        packets)
inline constexpr std::uint64_t kLong = 0xff;
inline constexpr std::uint64_t kNear = 1 << 16;

struct Stamp {
  std::uint64_t bits;

  static Stamp of(std::uint32_t generation, std::uint32_t count, std::uint64_t length,
                  std::uint64_t sequence) {
    return {std::uint64_t{generation} << 32 | std::uint64_t{count & 0xff} << 24 | length << 16 |
            (sequence & 0xffff)};
  }
  bool is(std::uint32_t generation, std::uint32_t count) const {
    return bits >> 24 == (std::uint64_t{generation} << 8 | (count & 0xff));
  }
  std::uint64_t length() const { return bits >> 16 & 0xff; }
  // The sequence that these bits stand for after another one.
  std::uint64_t sequence_after(std::uint64_t before) const {
    return before + static_cast<std::uint16_t>(bits - before);
  }
};

struct LongSlice {
  std::uint64_t sequence, message_bytes;  // of the envelope; valid in the first slice of a message
  std::uint64_t bytes;                    // in this slice, and kLent
  std::uint64_t address;                  // of a lent slice, in the sender's process
};

struct alignas(64) Slot {
  std::atomic<std::uint64_t> stamp{0};
  std::uint64_t fingerprint = 0;  // of the envelope; valid in the first slice of a message
  union {
    std::byte payload[kInlineBytes];
    LongSlice long_slice;
  };
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

// Where slice number `slice` lies, if it is not a short one, when so much of its message is left.
inline std::byte* long_payload(LaneBlock& block, std::uint32_t slice, std::uint64_t left) {
  return left <= kSmallBytes ? block.small[slice % kSlots].data : block.big[slice % kBigSlots].data;
}

}  // namespace pycomm
