#include "transport/tcp/outbox.h"

#include <algorithm>
#include <array>

namespace pycomm::tcp {

std::size_t Outbox::write(std::span<const Frame> frames) {
  if (pending() != 0) return 0;
  std::array<iovec, 2 * kFrames> pieces;
  std::size_t count = 0;
  for (const Frame& frame : frames.first(std::min(frames.size(), kFrames))) {
    pieces[count++] = {const_cast<FrameHeader*>(&frame.header), sizeof frame.header};
    if (frame.header.length != 0)
      pieces[count++] = {const_cast<std::byte*>(frame.payload), frame.header.length};
  }
  std::size_t taken = socket_.write({pieces.data(), count});
  written_ += taken;
  std::size_t accepted = 0;
  while (taken != 0) {
    const Frame& frame = frames[accepted++];
    const std::size_t whole = sizeof frame.header + frame.header.length;
    if (taken < whole) keep(frame, taken);
    taken -= std::min(taken, whole);
  }
  return accepted;
}

void Outbox::append(const Frame& frame) { keep(frame, 0); }

bool Outbox::flush() {
  if (pending() == 0) return false;
  const iovec piece{bytes_.data() + begin_, pending()};
  const std::size_t taken = socket_.write({&piece, 1});
  written_ += taken;
  begin_ += taken;
  if (pending() == 0) {
    bytes_.clear();
    begin_ = 0;
  }
  return taken != 0;
}

// The frame's bytes from the from-th on, header included.
void Outbox::keep(const Frame& frame, std::size_t from) {
  if (begin_ > bytes_.size() / 2) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }
  const auto* header = reinterpret_cast<const std::byte*>(&frame.header);
  const std::size_t in_header = std::min(from, sizeof frame.header);
  const std::size_t in_payload = from - in_header;
  bytes_.insert(bytes_.end(), header + in_header, header + sizeof frame.header);
  bytes_.insert(bytes_.end(), frame.payload + in_payload, frame.payload + frame.header.length);
}

}  // namespace pycomm::tcp
