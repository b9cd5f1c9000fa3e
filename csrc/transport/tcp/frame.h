// A frame: what travels over a TCP connection. A fixed header, then `length` bytes of payload.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace pycomm::tcp {

inline constexpr std::uint32_t kMagic = 0x4d4f4350;  // "PCOM" as it lies on the wire
inline constexpr std::uint16_t kVersion = 1;

// Fixed by the version, so that both sides know them without talking.
inline constexpr std::size_t kWindow = 1 << 20;        // credit of a lane at first, and at most
inline constexpr std::size_t kMessageCharge = 64;      // credit that a message takes besides its bytes
inline constexpr std::size_t kMaxFrame = 256 << 10;    // payload of one frame, at most
inline constexpr std::size_t kMaxFaultText = 4 << 10;  // bytes; a longer text is cut
inline constexpr std::size_t kMaxStrangeLanes = 4096;  // lanes a peer may open before they are asked for here

enum class FrameKind : std::uint16_t {
  kData = 1,     // a piece of a message
  kCredit = 2,   // only `acknowledged`
  kFault = 3,    // on lane 0: FaultFrame, then text
  kWaiting = 4,  // reserved: "I have waited for this message for a while"
  kGoodbye = 5,  // the last frame: the sender closes in good order
};

// Little endian, no padding. Credit is counted from the lane's beginning, in bytes and kMessageCharge for
// each message: the sender's charges less the `acknowledged` it has last heard of never exceed kWindow.
// `offset` and `acknowledged` are also what a broken link would be resumed from.
struct FrameHeader {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  FrameKind kind = FrameKind::kData;
  std::uint32_t communicator = 0;
  std::uint16_t lane = 0;
  std::uint16_t link = 0;           // reserved for endpoints of several links; 0
  std::uint64_t sequence = 0;       // of the envelope, in every frame of its message
  std::uint64_t fingerprint = 0;    // likewise
  std::uint64_t message_bytes = 0;  // likewise
  std::uint64_t offset = 0;         // of this frame's payload in its message
  std::uint64_t acknowledged = 0;   // on this lane, of what flows the other way
  std::uint64_t tag = 0;            // reserved for point-to-point; 0
  std::uint32_t length = 0;         // bytes of payload that follow
  std::uint32_t reserved = 0;       // 0
};

// Leads the payload of a fault frame; the header gives communicator and sequence.
struct FaultFrame {
  std::uint32_t kind;
  std::int32_t culprit;
};

static_assert(sizeof(FrameHeader) == 72 && std::is_trivially_copyable_v<FrameHeader>);
static_assert(sizeof(FaultFrame) == 8 && std::endian::native == std::endian::little);

// What is wrong with a received header taken by itself; empty if nothing.
std::string nonsense(const FrameHeader& header);

}  // namespace pycomm::tcp
