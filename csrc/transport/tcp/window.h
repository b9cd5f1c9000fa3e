// The receive window of a lane: a ring for the bytes that came before somebody asked for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/tcp/frame.h"

namespace pycomm::tcp {

// Places are congruent to offsets within the message modulo 8, so that no element of up to 8 bytes is split
// by the end of the ring. Messages lie one behind the other; whose byte is whose is the lane's business.
// Credit keeps the contents within kWindow: a message is charged more than the 7 bytes that aligning it may
// cost.
class Window {
 public:
  bool empty() const { return read_ == written_; }

  // Room for the next byte of a message, at `offset` in it, and for up to `bytes` in all.
  std::span<std::byte> room(std::uint64_t offset, std::size_t bytes) {
    if (!ring_) ring_ = std::make_unique_for_overwrite<std::byte[]>(kWindow);  // pages come when touched
    if (empty()) {
      read_ = written_ = offset % 8;  // start over: the same few pages stay in the cache
    } else if (offset == 0) {
      written_ = aligned(written_);
    }
    return piece(written_, std::min<std::uint64_t>(bytes, kWindow - (written_ - read_)));
  }
  void written(std::size_t bytes) { written_ += bytes; }

  // The next bytes of the head message, of which `bytes` are here; as many as lie in one piece.
  std::span<const std::byte> next(std::uint64_t bytes) {
    return bytes == 0 ? std::span<std::byte>() : piece(read_, bytes);
  }
  void taken(std::size_t bytes) { read_ += bytes; }
  // The head message is complete: go on to where the one behind it begins.
  void end_message() {
    if (!empty()) read_ = aligned(read_);
  }

  // Gives the memory back.
  void clear() {
    ring_.reset();
    read_ = written_ = 0;
  }

 private:
  static std::uint64_t aligned(std::uint64_t place) { return (place + 7) / 8 * 8; }
  std::span<std::byte> piece(std::uint64_t place, std::uint64_t bytes) {
    const std::size_t at = place % kWindow;
    return {ring_.get() + at, std::min<std::size_t>(bytes, kWindow - at)};
  }

  std::unique_ptr<std::byte[]> ring_;
  std::uint64_t read_ = 0;
  std::uint64_t written_ = 0;
};

}  // namespace pycomm::tcp
