"""Connections that are waited on together: of a parent, and of the children that a door lets in meanwhile."""

from __future__ import annotations

import os
import selectors
import socket
from queue import Empty, SimpleQueue

from pycomm.admission import frames
from pycomm.admission.deadline import Deadline
from pycomm.admission.frames import Inbox


class Lines:
    """Framed connections by the rank at their other end. Any thread may call `add`, one thread the rest."""

    def __init__(self) -> None:
        self._fresh: SimpleQueue[tuple[int, socket.socket]] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._socks: dict[int, socket.socket] = {}
        self._inboxes: dict[int, Inbox] = {}

    def add(self, rank: int, sock: socket.socket) -> None:
        """Takes over a connection, which is there from the next `receive` on."""
        self._fresh.put((rank, sock))
        self.wake()

    def wake(self) -> None:
        """Ends a `receive` early. By any thread."""
        os.eventfd_write(self._wake, 1)

    def ranks(self) -> list[int]:
        """Those that are there."""
        return list(self._socks)

    def receive(self, timeout_s: float) -> list[tuple[int, bytes | None]]:
        """Waits until something comes, and returns the frames; None where a rank hung up."""
        got: list[tuple[int, bytes | None]] = []
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                os.eventfd_read(self._wake)
                self._take_fresh()
                continue
            rank = key.data
            try:
                got += [(rank, frame) for frame in self._inboxes[rank].receive()]
            except OSError:
                self._selector.unregister(self._socks[rank])
                got.append((rank, None))
        return got

    def begun(self) -> list[int]:
        """The ranks of which part of a frame has come."""
        return [rank for rank, inbox in self._inboxes.items() if inbox.begun]

    def send(self, rank: int, frame: bytes, deadline: Deadline) -> None:
        """Raises TimeoutError, ConnectionError."""
        frames.send(self._socks[rank], frame, deadline)

    def close(self) -> None:
        """Closes them all. Idempotent."""
        if self._wake < 0:
            return
        self._take_fresh()
        for sock in self._socks.values():
            sock.close()
        self._selector.close()
        os.close(self._wake)
        self._wake = -1

    def _take_fresh(self) -> None:
        while True:
            try:
                rank, sock = self._fresh.get_nowait()
            except Empty:
                return
            self._socks[rank] = sock
            self._inboxes[rank] = Inbox(sock)
            self._selector.register(sock, selectors.EVENT_READ, rank)
