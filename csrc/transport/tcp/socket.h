// A connected stream socket that never blocks.
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <span>

#include "transport/tcp/endpoint.h"

namespace pycomm::tcp {

class Socket {
 public:
  // Takes the descriptor. Throws std::system_error if it is not a stream socket.
  Socket(int fd, const TcpOptions& options);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const { return fd_; }
  // Both return how many bytes moved, 0 if none can now; then `broken` may have become true.
  std::size_t write(std::span<const iovec> pieces);
  std::size_t read(std::span<const iovec> pieces);
  // Looks for an error or for the end of the stream without reading.
  void look();

  bool broken() const { return ended_ || error_ != 0; }
  bool ended() const { return ended_; }  // nothing more will be read
  int error() const { return error_; }   // errno of the first failure, else 0

  // Waits at most `time` for something to read, or, if wanted, for room to write.
  void wait(bool for_room, std::chrono::milliseconds time) const;
  // Bytes that the peer's machine has not yet acknowledged. 0 where that cannot be known.
  int unacknowledged() const;
  // Ends the connection both ways; nothing more is read or written.
  void hang_up();
  // As if a wire had been cut: both sides come to notice by themselves.
  void cut();

 private:
  int configure(const TcpOptions& options);  // errno, or 0

  int fd_;
  bool internet_ = false;
  bool ended_ = false;
  int error_ = 0;
};

}  // namespace pycomm::tcp
