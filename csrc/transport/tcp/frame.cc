#include "transport/tcp/frame.h"

namespace pycomm::tcp {
namespace {

std::string bad_message(const FrameHeader& header) {
  if (header.length > kMaxFrame) return "a frame of " + std::to_string(header.length) + " bytes";
  if (header.offset > header.message_bytes || header.length > header.message_bytes - header.offset)
    return "a frame that reaches past the end of its message";
  if (header.length == 0 && header.message_bytes != 0) return "an empty frame in a message that has bytes";
  return {};
}

}  // namespace

std::string nonsense(const FrameHeader& header) {
  if (header.magic != kMagic) return "not a frame (wrong magic number)";
  if (header.version != kVersion)
    return "protocol version " + std::to_string(header.version) + ", not " + std::to_string(kVersion);
  if (header.link != 0 || header.tag != 0 || header.reserved != 0) return "a reserved field that is not zero";
  const bool empty = header.message_bytes == 0 && header.offset == 0 && header.length == 0;
  const bool plain = empty && header.sequence == 0 && header.fingerprint == 0;
  switch (header.kind) {
    case FrameKind::kData:
      return bad_message(header);
    case FrameKind::kCredit:
      return plain ? "" : "a credit frame that carries a message";
    case FrameKind::kFault:
      if (header.lane != 0 || header.offset != 0 || header.fingerprint != 0 || header.acknowledged != 0 ||
          header.length != header.message_bytes || header.length < sizeof(FaultFrame) ||
          header.length > sizeof(FaultFrame) + kMaxFaultText)
        return "a malformed fault frame";
      return {};
    case FrameKind::kGoodbye:
      return plain && header.communicator == 0 && header.lane == 0 && header.acknowledged == 0
                 ? ""
                 : "a malformed goodbye frame";
    case FrameKind::kWaiting:
      break;
  }
  return "a frame of unknown kind " + std::to_string(static_cast<int>(header.kind));
}

}  // namespace pycomm::tcp
