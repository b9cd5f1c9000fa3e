"""The door: one thread that listens, lets in who proves to know the job's secret, and hands the sockets
on.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pycomm.admission import frames
from pycomm.admission.deadline import Deadline
from pycomm.admission.handshake import MESSAGE_LIMIT, Accepter, Dialer, Identity, Refused, Visitor
from pycomm.log import TRACE, logger

PENDING_LIMIT = 64  # handshakes under way; further callers wait in the kernel's queue
HANDSHAKE_S = 5.0  # for each caller, from the accept to its proof

Admit = Callable[[Visitor, socket.socket], None]


@dataclass(eq=False)
class _Caller:
    sock: socket.socket
    accepter: Accepter
    deadline: Deadline = field(default_factory=lambda: Deadline(HANDSHAKE_S))
    received: bytearray = field(default_factory=bytearray)
    replied: bool = False

    def missing(self) -> int:
        """How many bytes of the current message are still to come; nothing beyond it is ever read."""
        if len(self.received) < frames.LENGTH.size:
            return frames.LENGTH.size - len(self.received)
        (length,) = frames.LENGTH.unpack_from(self.received)
        if length > MESSAGE_LIMIT:
            raise Refused("a caller that does not speak pycomm's handshake")
        return int(length) + frames.LENGTH.size - len(self.received)


class Door:
    """Accepts on its listeners until closed. `admit` is called in the door's thread and must not block."""

    def __init__(self, identity: Identity, listeners: list[socket.socket], admit: Admit) -> None:
        self._identity = identity
        self._listeners = listeners
        self._admit = admit
        self._callers: set[_Caller] = set()
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._listening = False
        self._closing = False
        self._unwanted: list[socket.socket] = []
        for listener in listeners:
            listener.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="pycomm door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening and ends the thread."""
        if self._wake < 0:
            return
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        self._wake = -1

    def leave(self, listeners: Iterable[socket.socket]) -> None:
        """Closes some of its listeners; soon, in its own thread."""
        self._unwanted.extend(listeners)
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        try:
            while True:
                self._listen(len(self._callers) < PENDING_LIMIT)
                first = min((caller.deadline.left_s() for caller in self._callers), default=None)
                for key, _ in self._selector.select(first):
                    if key.fd == self._wake:
                        if self._closing:
                            return
                        self._leave()
                        continue
                    if key.data is None:
                        self._accept(key.fileobj)  # type: ignore[arg-type]
                    else:
                        self._advance(key.data)
                for caller in [caller for caller in self._callers if caller.deadline.passed()]:
                    self._dismiss(caller, f"a caller that was silent for {HANDSHAKE_S:g} s")
        finally:
            for caller in self._callers:
                caller.sock.close()
            for listener in self._listeners:
                listener.close()
            self._selector.close()

    def _leave(self) -> None:
        os.eventfd_read(self._wake)
        self._listen(False)
        while self._unwanted:
            listener = self._unwanted.pop()
            self._listeners.remove(listener)
            listener.close()

    def _listen(self, wanted: bool) -> None:
        if wanted == self._listening:
            return
        for listener in self._listeners:
            if wanted:
                self._selector.register(listener, selectors.EVENT_READ)
            else:
                self._selector.unregister(listener)
        self._listening = wanted

    def _accept(self, listener: socket.socket) -> None:
        if len(self._callers) >= PENDING_LIMIT:
            return
        try:
            sock, _ = listener.accept()
        except OSError:  # it hung up again, or there is no descriptor left: the next look will tell
            return
        sock.setblocking(False)
        caller = _Caller(sock, Accepter(self._identity))
        self._callers.add(caller)
        self._selector.register(sock, selectors.EVENT_READ, caller)

    def _advance(self, caller: _Caller) -> None:
        try:
            data = caller.sock.recv(caller.missing())
            if not data:
                raise Refused("a caller that hung up")
            caller.received += data
            if caller.missing() > 0:
                return
            message = bytes(caller.received[frames.LENGTH.size :])
            caller.received.clear()
            if not caller.replied:
                reply = caller.accepter.reply(message)
                caller.sock.sendall(frames.LENGTH.pack(len(reply)) + reply)
                caller.replied = True
            else:
                visitor = caller.accepter.admit(message)
                self._forget(caller)
                caller.sock.settimeout(None)
                self._admit(visitor, caller.sock)
        except BlockingIOError:
            return
        except OSError as why:
            self._dismiss(caller, str(why))

    def _forget(self, caller: _Caller) -> None:
        if caller in self._callers:
            self._callers.remove(caller)
            self._selector.unregister(caller.sock)

    def _dismiss(self, caller: _Caller, why: str) -> None:
        logger.log(TRACE, "rank %d turned away %s", self._identity.rank, why)
        self._forget(caller)
        caller.sock.close()


def knock(sock: socket.socket, dialer: Dialer, deadline: Deadline) -> None:
    """The dialer's half, on a connected socket. Raises Refused, ConnectionError, TimeoutError."""
    frames.send(sock, dialer.hello, deadline)
    proof = dialer.answer(frames.receive(sock, deadline, MESSAGE_LIMIT))
    frames.send(sock, proof, deadline)
