// What has come in from a socket and has not yet been looked at.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/tcp/frame.h"
#include "transport/tcp/socket.h"

namespace pycomm::tcp {

// Small frames come many at a time; of a large one the payload goes straight to where it belongs, and with
// its last bytes comes the next header.
class Inbox {
 public:
  static constexpr std::size_t kBytes = 8 << 10;

  explicit Inbox(Socket& socket) : socket_(socket) {}

  std::size_t size() const { return end_ - begin_; }
  // Grows whenever bytes come in or are moved on.
  std::uint64_t progress() const { return progress_; }
  // True when the last read found less than it had room for: another would find nothing.
  bool dry() const { return dry_; }
  void expect_more() { dry_ = false; }

  // Reads what is there. Only when there is no complete header.
  void fill();
  // Removes a header from the front. Only when there is one.
  FrameHeader header();
  // Moves payload of a frame to `to`, from here or straight from the socket; `whole` when `to` is all that is
  // missing.
  std::size_t payload(std::span<std::byte> to, bool whole, bool large);

 private:
  Socket& socket_;
  std::array<std::byte, kBytes> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t progress_ = 0;
  bool dry_ = false;
};

}  // namespace pycomm::tcp
