// The receive window of a lane: a ring for the bytes that came before somebody asked for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/tcp/frame.h"

namespace pycomm::tcp {

// Every position of the lane has its place, so that bytes may come in any order; which are there is the
// lane's business. Credit sees to it that no two positions of one place are in use. Messages begin at
// multiples of 8, so no element of up to 8 bytes is split by the end of the ring.
class Window {
 public:
  // Nothing is held: the next room is at the beginning, so that the same few pages stay in the cache.
  void restart(std::uint64_t position) { origin_ = position / 8 * 8; }

  // Room for up to `bytes` bytes from a position on; as many as lie in one piece.
  std::span<std::byte> room(std::uint64_t position, std::size_t bytes) {
    if (!ring_) ring_ = std::make_unique_for_overwrite<std::byte[]>(kWindow);  // pages come when touched
    return piece(position, bytes);
  }
  // Likewise what is there.
  std::span<const std::byte> at(std::uint64_t position, std::size_t bytes) const {
    return bytes == 0 ? std::span<std::byte>() : piece(position, bytes);
  }
  // Gives the memory back.
  void clear() { ring_.reset(); }

 private:
  std::span<std::byte> piece(std::uint64_t position, std::size_t bytes) const {
    const std::size_t at = (position - origin_) % kWindow;
    return {ring_.get() + at, std::min(bytes, kWindow - at)};
  }

  std::unique_ptr<std::byte[]> ring_;
  std::uint64_t origin_ = 0;  // position whose place is the beginning of the ring
};

}  // namespace pycomm::tcp
