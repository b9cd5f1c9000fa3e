// The TCP transport: an endpoint over connected stream sockets, its links.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "transport/endpoint.h"

namespace pycomm {

struct TcpOptions {
  // A connection is lost when sent bytes stay unacknowledged for so long, and also when the peer's machine
  // answers but its socket stays full for so long. Generous therefore: a peer that is stopped, or drives none
  // of its endpoints for a while, must not be lost; deadlines of calls notice a dead network sooner
  // (TCP_USER_TIMEOUT).
  std::chrono::milliseconds user_timeout{120'000};
  // An idle connection is probed so often (TCP_KEEPIDLE, TCP_KEEPINTVL).
  std::chrono::seconds keepalive{10};
  // Bytes that may wait in the socket, not yet on the wire; small, so that acknowledgements do not queue
  // behind data (TCP_NOTSENT_LOWAT).
  int unsent_bytes = 128 << 10;
  // With several links, one that lets nothing through for so long is given up if the peer is heard over
  // another meanwhile. Never one of a peer that is merely stopped, or outside all calls: it is silent on all
  // links.
  std::chrono::milliseconds link_timeout{2'500};
  // How long the destructor waits for the peer's machine to acknowledge what was sent.
  std::chrono::milliseconds linger{200};
};

// Over connected and authenticated stream sockets: IPv4, IPv6 or ends of socketpairs; link i of one side is
// link i of the other, and both have as many. Takes the descriptors, also when it throws: std::system_error
// if one is no stream socket, std::invalid_argument if there are none, or more than 64. `peer` is the rank at
// the other end. Two threads may drive it, if each keeps to the lanes of its own communicators.
std::unique_ptr<Endpoint> make_tcp_endpoint(int peer, const std::vector<int>& socket_fds,
                                            const TcpOptions& options = {});

}  // namespace pycomm
