#include "transport/tcp/frame.h"

namespace pycomm::tcp {
namespace {

constexpr std::uint64_t kMaxMessage = std::uint64_t{1} << 62;  // sums of sizes and positions do not overflow

std::string bad_message(const FrameHeader& header) {
  if (header.length > kMaxFrame) return "a frame of " + std::to_string(header.length) + " bytes";
  if (header.message_bytes > kMaxMessage) return "a message that no memory can hold";
  if (header.offset > header.message_bytes || header.length > header.message_bytes - header.offset)
    return "a frame that reaches past the end of its message";
  if (header.length == 0 && header.message_bytes != 0) return "an empty frame in a message that has bytes";
  if (header.position < kMessageCharge + header.offset ||
      (header.position - kMessageCharge - header.offset) % 8 != 0)
    return "a frame at a position where no message can have it";
  return {};
}

bool good_fault(const FrameHeader& header) {
  return header.lane == 0 && header.offset == 0 && header.position == 0 && header.fingerprint == 0 &&
         header.acknowledged == 0 && header.length == header.message_bytes &&
         header.length >= sizeof(FaultFrame) && header.length <= sizeof(FaultFrame) + kMaxFaultText;
}

}  // namespace

std::string nonsense(const FrameHeader& header) {
  if (header.magic != kMagic) return "not a frame (wrong magic number)";
  if (header.version != kVersion)
    return "protocol version " + std::to_string(header.version) + ", not " + std::to_string(kVersion);
  if (header.tag != 0) return "a reserved field that is not zero";
  const bool no_message = header.message_bytes == 0 && header.offset == 0 && header.length == 0 &&
                          header.sequence == 0 && header.fingerprint == 0;
  const bool no_lane = no_message && header.communicator == 0 && header.lane == 0 && header.acknowledged == 0;
  switch (header.kind) {
    case FrameKind::kData:
      return bad_message(header);
    case FrameKind::kCredit:
      return no_message && header.position == 0 ? "" : "a credit frame that carries a message";
    case FrameKind::kFault:
      return good_fault(header) ? "" : "a malformed fault frame";
    case FrameKind::kGoodbye:
      return no_lane && header.position == 0 ? "" : "a malformed goodbye frame";
    case FrameKind::kTaken:
    case FrameKind::kPing:
      return no_lane && header.position == 0 ? "" : "an acknowledgement that carries something";
    case FrameKind::kLinkLost:
      return no_lane && header.position < kMaxLinks ? "" : "a malformed frame about a lost link";
    case FrameKind::kWaiting:
      break;
  }
  return "a frame of unknown kind " + std::to_string(static_cast<int>(header.kind));
}

}  // namespace pycomm::tcp
