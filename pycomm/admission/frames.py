"""Length-prefixed messages over a stream socket: within a deadline, or as they come."""

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


class Inbox:
    """Reads the frames of one socket as they come, and never waits."""

    def __init__(self, sock: socket.socket, limit: int = LIMIT) -> None:
        self._sock = sock
        self._limit = limit
        self._data = bytearray()

    @property
    def begun(self) -> bool:
        """Whether part of a frame has come, and its end has not."""
        return bool(self._data)

    def receive(self) -> list[bytes]:
        """The frames that are complete with what has come. Raises ConnectionError; Closed at the end."""
        self._sock.setblocking(False)
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return []
        if not data:
            raise Closed("the other side closed the connection")
        self._data += data
        found, start = [], 0
        while len(self._data) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._data, start)
            if length > self._limit:
                raise ConnectionError(f"a frame of {length} bytes where at most {self._limit} are allowed")
            end = start + LENGTH.size + length
            if end > len(self._data):
                break
            found.append(bytes(self._data[start + LENGTH.size : end]))
            start = end
        del self._data[:start]
        return found


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
