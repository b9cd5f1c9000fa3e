"""Length-prefixed messages over a stream socket, within a deadline."""

from __future__ import annotations

import socket
import struct

from pycomm.admission.deadline import Deadline

LENGTH = struct.Struct("!I")
LIMIT = 64 << 20  # of a frame among ranks that know each other


class Closed(ConnectionError):
    """The other side has ended the stream."""


def send(sock: socket.socket, payload: bytes, deadline: Deadline) -> None:
    """Sends one frame. Raises TimeoutError, ConnectionError."""
    _limit(sock, deadline)
    sock.sendall(LENGTH.pack(len(payload)) + payload)


def receive(sock: socket.socket, deadline: Deadline, limit: int = LIMIT) -> bytes:
    """Receives one frame, and reads nothing beyond it. Raises TimeoutError, ConnectionError."""
    (length,) = LENGTH.unpack(_exactly(sock, LENGTH.size, deadline))
    if length > limit:
        raise ConnectionError(f"a frame of {length} bytes where at most {limit} are allowed")
    return _exactly(sock, length, deadline)


def _exactly(sock: socket.socket, size: int, deadline: Deadline) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    got = 0
    while got < size:
        _limit(sock, deadline)
        count = sock.recv_into(view[got:])
        if count == 0:
            raise Closed("the other side closed the connection")
        got += count
    return bytes(data)


def _limit(sock: socket.socket, deadline: Deadline) -> None:
    left = deadline.left_s()
    if left == 0:
        raise TimeoutError("deadline passed")
    sock.settimeout(left)
