#include "transport/tcp/socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace pycomm::tcp {
namespace {

// Options are hints (an emulated kernel may lack one), so a failure to set one is no error.
void set(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); }

bool nothing_now(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS; }

}  // namespace

Socket::Socket(int fd, const TcpOptions& options) : fd_(fd) {
  if (const int error = configure(options); error != 0) {
    close(fd);
    throw std::system_error(error, std::generic_category(),
                            "descriptor " + std::to_string(fd) + " as a TCP connection");
  }
}

int Socket::configure(const TcpOptions& options) {
  int type = 0;
  socklen_t size = sizeof type;
  sockaddr_storage address{};
  socklen_t address_size = sizeof address;
  const int flags = fcntl(fd_, F_GETFL);
  if (getsockopt(fd_, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || flags < 0 ||
      getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &address_size) != 0 ||
      fcntl(fd_, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd_, F_SETFD, FD_CLOEXEC) != 0)
    return errno;
  if (type != SOCK_STREAM) return EPROTOTYPE;
  internet_ = address.ss_family == AF_INET || address.ss_family == AF_INET6;
  if (!internet_) return 0;
  set(fd_, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd_, IPPROTO_TCP, TCP_NOTSENT_LOWAT, options.unsent_bytes);
  set(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(options.user_timeout.count()));
  set(fd_, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd_, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(options.keepalive.count()));
  set(fd_, IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(options.keepalive.count()));
  return 0;
}

Socket::~Socket() { close(fd_); }

std::size_t Socket::write(std::span<const iovec> pieces) {
  if (broken()) return 0;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  for (;;) {
    const ssize_t moved = sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (moved >= 0) return static_cast<std::size_t>(moved);
    if (errno == EINTR) continue;
    if (!nothing_now(errno)) error_ = errno;
    return 0;
  }
}

// Reads on after a failed write: what had come before is still there.
std::size_t Socket::read(std::span<const iovec> pieces) {
  if (ended_) return 0;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  for (;;) {
    const ssize_t moved = recvmsg(fd_, &message, MSG_DONTWAIT);
    if (moved > 0) return static_cast<std::size_t>(moved);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && nothing_now(errno)) return 0;
    if (moved < 0 && error_ == 0) error_ = errno;
    ended_ = true;
    return 0;
  }
}

void Socket::look() {
  if (broken()) return;
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0) {
    error_ = error;
    return;
  }
  std::byte byte;
  const ssize_t seen = recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (seen == 0) ended_ = true;
  if (seen < 0 && errno != EINTR && !nothing_now(errno)) error_ = errno;
}

void Socket::wait(bool for_room, std::chrono::milliseconds time) const {
  pollfd entry{fd_, static_cast<short>(for_room ? POLLIN | POLLOUT : POLLIN), 0};
  ::poll(&entry, 1, static_cast<int>(time.count()));
}

int Socket::unacknowledged() const {
  int bytes = 0;
  return internet_ && ioctl(fd_, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

void Socket::hang_up() {
  ended_ = true;
  shutdown(fd_, SHUT_RDWR);
}

void Socket::cut() { shutdown(fd_, SHUT_RDWR); }

}  // namespace pycomm::tcp
