// A frame: what travels over a link. A fixed header, then `length` bytes of payload.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace pycomm::tcp {

inline constexpr std::uint32_t kMagic = 0x4d4f4350;  // "PCOM" as it lies on the wire
inline constexpr std::uint16_t kVersion = 2;

// Fixed by the version, so that both sides know them without talking.
inline constexpr std::size_t kWindow = 1 << 20;        // credit of a lane at first, and at most
inline constexpr std::size_t kMessageCharge = 64;      // credit that a message takes besides its bytes
inline constexpr std::size_t kMaxFrame = 256 << 10;    // payload of one frame, at most
inline constexpr std::size_t kCopyBytes = 4 << 10;     // a frame of up to so much is copied by its sender
inline constexpr std::size_t kMaxFaultText = 4 << 10;  // bytes; a longer text is cut
inline constexpr std::size_t kMaxStrangeLanes = 4096;  // lanes a peer may open before they are asked for here
inline constexpr std::size_t kMaxGaps = 4096;          // in what has come of one lane
inline constexpr std::size_t kMaxLinks = 64;

enum class FrameKind : std::uint16_t {
  kData = 1,      // a piece of a message
  kCredit = 2,    // only `acknowledged`
  kFault = 3,     // on lane 0: FaultFrame, then text
  kWaiting = 4,   // reserved: "I have waited for this message for a while"
  kGoodbye = 5,   // the last frame of a link: the sender closes in good order
  kTaken = 6,     // only `taken`; the one kind that is not itself counted there
  kPing = 7,      // wants nothing but to be acknowledged
  kLinkLost = 8,  // the sender has given up the link whose number is in `position`
};

// Little endian, no padding.
//
// A lane is one row of positions, from 0 on. A message takes kMessageCharge of them and then one for each
// byte, and the next message begins at the next multiple of 8; so a frame may come at any time and over any
// link, and its place is known. Credit is counted in positions too: no byte is sent that lies kWindow or more
// behind the `acknowledged` that was last heard of.
struct FrameHeader {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  FrameKind kind = FrameKind::kData;
  std::uint32_t communicator = 0;
  std::uint16_t lane = 0;
  std::uint16_t link = 0;           // that the frame travels on
  std::uint64_t sequence = 0;       // of the envelope, in every frame of its message
  std::uint64_t fingerprint = 0;    // likewise
  std::uint64_t message_bytes = 0;  // likewise
  std::uint64_t offset = 0;         // of this frame's payload in its message
  std::uint64_t position = 0;       // of this frame's payload in its lane
  std::uint64_t acknowledged = 0;   // positions that the user has taken of what flows the other way
  std::uint64_t tag = 0;            // reserved for point-to-point; 0
  std::uint32_t length = 0;         // bytes of payload that follow
  std::uint32_t taken = 0;          // frames that came over this link and were read to their end (mod 2^32)
};

// Leads the payload of a fault frame; the header gives communicator and sequence.
struct FaultFrame {
  std::uint32_t kind;
  std::int32_t culprit;
};

static_assert(sizeof(FrameHeader) == 80 && std::is_trivially_copyable_v<FrameHeader>);
static_assert(sizeof(FaultFrame) == 8 && std::endian::native == std::endian::little);

// The positions of a message of `bytes` bytes, as a number.
inline std::uint64_t charge_of(std::uint64_t bytes) { return kMessageCharge + (bytes + 7) / 8 * 8; }
// The first position of a data frame: to the first frame of a message belongs the message's charge.
inline std::uint64_t begin_of(const FrameHeader& header) {
  return header.position - (header.offset == 0 ? kMessageCharge : 0);
}

// What is wrong with a received header taken by itself; empty if nothing.
std::string nonsense(const FrameHeader& header);

}  // namespace pycomm::tcp
