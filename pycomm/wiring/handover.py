"""Handing each other memory: over an abstract Unix socket, after the handshake, go the descriptors of segment
and doorbell. That it worked is what makes two ranks neighbours on one node.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
from dataclasses import dataclass

from pycomm.admission.deadline import Deadline
from pycomm.admission.door import knock
from pycomm.admission.handshake import Dialer, Identity, Refused

PURPOSE = "handover"
SO_PEERPIDFD = 77  # asm-generic/socket.h, Linux 6.5
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: struct ucred
HANDOVER_S = 10.0


@dataclass
class Handed:
    """A neighbour's descriptors, owned until they are given away or closed."""

    segment_fd: int
    event_fd: int
    pidfd: int  # -1 where its process cannot be seen, as from another pid namespace before Linux 6.5

    def close(self) -> None:
        """Closes them."""
        for descriptor in (self.segment_fd, self.event_fd, self.pidfd):
            if descriptor >= 0:
                os.close(descriptor)


def open_door() -> tuple[str, socket.socket]:
    """A listening Unix socket under a random abstract name: it belongs to the network namespace and
    leaves no file.
    """
    name = f"pycomm-{secrets.token_hex(16)}"
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind("\0" + name)
    sock.listen(socket.SOMAXCONN)
    return name, sock


def hand_over(sock: socket.socket, descriptors: list[int]) -> None:
    """Sends this rank's segment and doorbell. Never blocks: it is the first thing this side sends."""
    socket.send_fds(sock, [b"!"], descriptors)


def take(sock: socket.socket, deadline: Deadline) -> Handed:
    """Receives a neighbour's. Raises ConnectionError, TimeoutError."""
    pid, uid, _ = CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    if uid != os.geteuid():
        raise Refused(f"a process of user {uid}")
    sock.settimeout(deadline.left_s() or 0.001)
    _, descriptors, _, _ = socket.recv_fds(sock, 1, 2)
    if len(descriptors) != 2:
        for descriptor in descriptors:
            os.close(descriptor)
        raise Refused("no descriptors came")
    return Handed(descriptors[0], descriptors[1], _process(sock, pid))


def _process(sock: socket.socket, pid: int) -> int:
    """The process at the other end, also one of another pid namespace. -1 where it is not to be had."""
    with contextlib.suppress(OSError):
        (pidfd,) = struct.unpack("i", sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4))
        return int(pidfd)
    with contextlib.suppress(OSError):  # of pid 0: not in this namespace
        return os.pidfd_open(pid)
    return -1


def exchange(identity: Identity, peer: int, name: str, descriptors: list[int], deadline: Deadline) -> Handed:
    """The dialer's part: both hand over. Raises OSError where that fails: the peer is no neighbour."""
    limit = deadline.within(HANDOVER_S)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(limit.left_s() or 0.001)
        sock.connect("\0" + name)
        knock(sock, Dialer(identity, PURPOSE, peer), limit)
        hand_over(sock, descriptors)
        return take(sock, limit)
