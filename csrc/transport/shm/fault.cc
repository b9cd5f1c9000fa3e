#include "transport/shm/fault.h"

#include <algorithm>
#include <cstring>

namespace pycomm {

namespace {

enum State : std::uint32_t { kNone = 0, kWriting = 1, kReadable = 2 };

// Bytes of `text` that fit into `room` without splitting a UTF-8 character.
std::size_t fitting(std::string_view text, std::size_t room) {
  if (text.size() <= room) return text.size();
  std::size_t end = room;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

}  // namespace

bool publish_fault(SegmentControl& control, std::uint32_t kind, int culprit, std::uint32_t communicator,
                   std::uint64_t sequence, std::string_view text) {
  FaultRecord& fault = control.fault;
  std::uint32_t none = kNone;
  if (!fault.state.compare_exchange_strong(none, kWriting)) return false;
  fault.kind.store(kind, std::memory_order_relaxed);
  fault.culprit.store(culprit, std::memory_order_relaxed);
  fault.communicator.store(communicator, std::memory_order_relaxed);
  fault.sequence.store(sequence, std::memory_order_relaxed);
  const std::size_t length = fitting(text, sizeof(fault.text) - 1);
  text.copy(fault.text, length);
  fault.text[length] = '\0';
  fault.state.store(kReadable, std::memory_order_release);
  return true;
}

std::optional<Fault> read_fault(const SegmentControl& control) {
  const FaultRecord& fault = control.fault;
  if (fault.state.load(std::memory_order_acquire) != kReadable) return std::nullopt;
  Fault copy;
  copy.kind = fault.kind.load(std::memory_order_relaxed);
  copy.culprit = fault.culprit.load(std::memory_order_relaxed);
  copy.communicator = fault.communicator.load(std::memory_order_relaxed);
  copy.sequence = fault.sequence.load(std::memory_order_relaxed);
  copy.text.assign(fault.text, strnlen(fault.text, sizeof(fault.text)));
  return copy;
}

}  // namespace pycomm
