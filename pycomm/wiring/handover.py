"""Handing each other memory: over an abstract Unix socket, after the handshake, go the descriptors of
segment, doorbell and process. That it worked is what makes two ranks neighbours on one node.

One rank of a node, its leader, takes in everybody's and hands all of them on: G - 1 connections for G ranks
instead of one for each pair.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from pycomm.admission.deadline import Deadline
from pycomm.admission.door import knock
from pycomm.admission.handshake import Dialer, Identity, Refused

PURPOSE = "handover"
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: struct ucred
HANDOVER_S = 10.0
MOST_DESCRIPTORS = 253  # in one message: SCM_MAX_FD, net/scm.h
EACH = 3  # descriptors of a rank, at most
WHOSE = struct.Struct("!IB")  # in front of them: the rank, and how many are its
TAKEN = b"+"


@dataclass
class Handed:
    """A neighbour's descriptors, owned until they are given away or closed."""

    segment_fd: int
    event_fd: int
    pidfd: int  # -1 where the system has none: before Linux 5.3

    def descriptors(self) -> list[int]:
        """Those that there are."""
        return [each for each in (self.segment_fd, self.event_fd, self.pidfd) if each >= 0]

    def close(self) -> None:
        """Closes them."""
        for descriptor in self.descriptors():
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


def own(segment_fd: int, event_fd: int) -> Handed:
    """This rank's. A process's descriptor of itself is good in every pid namespace."""
    pidfd = -1
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(os.getpid())
    return Handed(os.dup(segment_fd), os.dup(event_fd), pidfd)


def call(identity: Identity, leader: int, name: str, mine: Handed, deadline: Deadline) -> socket.socket:
    """At the leader's door: hands this rank's over; all others' will come by the same socket. Raises OSError
    where that does not work: the two are no neighbours.
    """
    limit = deadline.within(HANDOVER_S)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(limit.left_s() or 0.001)
        sock.connect("\0" + name)
        knock(sock, Dialer(identity, PURPOSE, leader), limit)
        _check_user(sock)
        socket.send_fds(sock, [b"!"], mine.descriptors())
    except BaseException:
        sock.close()
        raise
    return sock


def take(sock: socket.socket, deadline: Deadline) -> Handed:
    """Receives one rank's. Raises ConnectionError, TimeoutError."""
    _check_user(sock)
    sock.settimeout(deadline.left_s() or 0.001)
    _, descriptors, _, _ = socket.recv_fds(sock, 1, EACH)
    return _handed(descriptors)


def hand_on(
    lines: Mapping[int, socket.socket], handed: Mapping[int, Handed], most: int, deadline: Deadline
) -> None:
    """Gives each of `lines` what all others have handed over, with no more than `most` descriptors under way
    at a time. Raises ConnectionError, TimeoutError.
    """
    ranks = sorted(handed)
    files = {rank: handed[rank].descriptors() for rank in ranks}
    heads = {rank: WHOSE.pack(rank, len(files[rank])) for rank in ranks}
    size = MOST_DESCRIPTORS // EACH
    waiting: deque[tuple[socket.socket, int]] = deque()
    under_way = 0
    for start in range(0, len(ranks), size):
        for to, line in lines.items():
            batch = [rank for rank in ranks[start : start + size] if rank != to]
            if not batch:
                continue
            descriptors = [each for rank in batch for each in files[rank]]
            while waiting and under_way + len(descriptors) > most:
                under_way -= _acknowledged(waiting, deadline)
            while not _sent(line, b"".join(map(heads.__getitem__, batch)), descriptors, deadline):
                under_way -= _acknowledged(waiting, deadline)
            waiting.append((line, len(descriptors)))
            under_way += len(descriptors)
        while waiting:
            under_way -= _acknowledged(waiting, deadline)


def receive(line: socket.socket, count: int, deadline: Deadline) -> dict[int, Handed]:
    """What a leader hands on of `count` others. Raises ConnectionError, TimeoutError."""
    found: dict[int, Handed] = {}
    try:
        while len(found) < count:
            line.settimeout(deadline.left_s() or 0.001)
            whose, descriptors, _, _ = socket.recv_fds(line, WHOSE.size * MOST_DESCRIPTORS, MOST_DESCRIPTORS)
            if not whose:
                raise ConnectionError("it left")
            for rank, number in WHOSE.iter_unpack(whose):
                found[rank] = _handed(descriptors[:number])
                del descriptors[:number]
            line.sendall(TAKEN)
    except BaseException:
        for each in found.values():
            each.close()
        raise
    return found


def _handed(descriptors: list[int]) -> Handed:
    if len(descriptors) not in (EACH - 1, EACH):
        for descriptor in descriptors:
            os.close(descriptor)
        raise Refused("no descriptors came: is the limit on open files (ulimit -n) too low?")
    return Handed(*[*descriptors, -1][:EACH])


def _sent(line: socket.socket, whose: bytes, descriptors: list[int], deadline: Deadline) -> bool:
    """False where too many descriptors of this user are under way: RLIMIT_NOFILE bounds them, unix(7)."""
    try:
        line.settimeout(deadline.left_s() or 0.001)
        socket.send_fds(line, [whose], descriptors)
    except OSError as why:
        if why.errno != errno.ETOOMANYREFS or deadline.passed():
            raise
        return False
    return True


def _acknowledged(waiting: deque[tuple[socket.socket, int]], deadline: Deadline) -> int:
    """Waits for the oldest to have been taken; returns how many descriptors it had."""
    if not waiting:
        time.sleep(0.001)  # it is others' that are under way
        return 0
    line, count = waiting.popleft()
    line.settimeout(deadline.left_s() or 0.001)
    if line.recv(1) != TAKEN:
        raise ConnectionError("a neighbour left")
    return count


def _check_user(sock: socket.socket) -> None:
    _, uid, _ = CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    if uid != os.geteuid():
        raise Refused(f"a process of user {uid}")
