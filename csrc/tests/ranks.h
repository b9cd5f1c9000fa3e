// Runs a body once for each of n ranks that share memory: as threads of this process, or as processes that
// hand each other their segments.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "transport/fabric.h"

namespace ranks {

using Body = std::function<void(pycomm::Fabric&)>;

inline void run(pycomm::Fabric& fabric, const Body& body) {
  try {
    body(fabric);
  } catch (const std::exception& error) {
    check::fail(__FILE__, __LINE__, "rank " + std::to_string(fabric.rank()) + " threw " + error.what());
  }
}

inline void as_threads(int size, const Body& body) {
  auto fabrics = pycomm::Fabric::in_memory(size);
  std::vector<std::thread> threads;
  for (auto& fabric : fabrics) threads.emplace_back([&] { run(*fabric, body); });
  for (auto& thread : threads) thread.join();
}

// What a rank tells another over a Unix socket, its segment and eventfd beside it.
struct Greeting {
  pid_t pid = 0;
  int segment_fd = -1, event_fd = -1;
};

inline void greet(int socket, const pycomm::Fabric& fabric) {
  Greeting greeting{getpid(), -1, -1};
  const int fds[2] = {fabric.segment_fd(), fabric.event_fd()};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(fds))] = {};
  iovec data{&greeting, sizeof(greeting)};
  msghdr message{nullptr, 0, &data, 1, space, sizeof(space), 0};
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(rights), fds, sizeof(fds));
  if (sendmsg(socket, &message, 0) != sizeof(greeting)) throw std::runtime_error("sendmsg");
}

inline Greeting greeted(int socket) {
  Greeting greeting;
  int fds[2];
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(fds))] = {};
  iovec data{&greeting, sizeof(greeting)};
  msghdr message{nullptr, 0, &data, 1, space, sizeof(space), 0};
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof(greeting)) throw std::runtime_error("recvmsg");
  std::memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fds));
  greeting.segment_fd = fds[0];
  greeting.event_fd = fds[1];
  return greeting;
}

// sockets[j] leads to rank j.
inline void connect(pycomm::Fabric& fabric, const std::vector<int>& sockets) {
  for (int socket : sockets) {
    if (socket >= 0) greet(socket, fabric);
  }
  for (int peer = 0; peer < fabric.size(); ++peer) {
    const int socket = sockets[static_cast<std::size_t>(peer)];
    if (socket < 0) continue;
    const Greeting greeting = greeted(socket);
    const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, greeting.pid, 0));
    fabric.add_shm(peer, greeting.segment_fd, greeting.event_fd, pidfd);
  }
}

// Processes are forked, so no thread may run meanwhile. Rank `killed` has to die of SIGKILL.
inline void as_processes(int size, const Body& body, int killed = -1) {
  const auto n = static_cast<std::size_t>(size);
  std::vector<std::vector<int>> sockets(n, std::vector<int>(n, -1));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) throw std::runtime_error("socketpair");
      sockets[i][j] = pair[0];
      sockets[j][i] = pair[1];
    }
  }
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    pids.push_back(fork());
    if (pids.back() != 0) continue;
    check::failures = 0;
    {
      pycomm::Fabric fabric(rank, size);
      run(fabric, [&](pycomm::Fabric& mine) {
        connect(mine, sockets[static_cast<std::size_t>(rank)]);
        body(mine);
      });
    }
    _exit(check::failures > 0);
  }
  for (auto& row : sockets) {
    for (int socket : row) {
      if (socket >= 0) close(socket);
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    waitpid(pids[static_cast<std::size_t>(rank)], &status, 0);
    if (rank == killed ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0) {
      check::fail(__FILE__, __LINE__,
                  "rank " + std::to_string(rank) + " ended with " + std::to_string(status));
    }
  }
}

}  // namespace ranks
