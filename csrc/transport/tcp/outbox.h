// What is on its way out of a link: frames, in the order in which they were accepted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/tcp/frame.h"
#include "transport/tcp/socket.h"

namespace pycomm::tcp {

// Its payload has header.length bytes, in the caller's memory.
struct Frame {
  FrameHeader header;
  const std::byte* payload = nullptr;
};

// A frame is accepted whole or not at all, and memory of the caller is not looked at again after the call
// that accepted it: what the socket did not take of an accepted frame is copied here.
class Outbox {
 public:
  static constexpr std::size_t kFrames = kWindow / kMaxFrame;  // in one system call, at most

  explicit Outbox(Socket& socket) : socket_(socket) {}

  // Sends straight from the caller's memory. Returns how many frames were accepted, from the first on: those
  // of which the socket took at least a byte. None while older bytes are pending.
  std::size_t write(std::span<const Frame> frames);
  // Accepts a frame by copying it.
  void append(const Frame& frame);
  // Offers pending bytes to the socket. True if it took any.
  bool flush();

  std::size_t pending() const { return bytes_.size() - begin_; }
  // Bytes of all accepted frames, and how many of them the socket has taken.
  std::uint64_t accepted() const { return written_ + pending(); }
  std::uint64_t written() const { return written_; }

 private:
  void keep(const Frame& frame, std::size_t from);

  Socket& socket_;
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;  // of what is pending in bytes_
  std::uint64_t written_ = 0;
};

}  // namespace pycomm::tcp
