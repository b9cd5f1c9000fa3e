"""The rendezvous over TCP: rank 0 is the host, the others are its guests.

Once a guest is through the door, it and the host exchange frames: a byte that says what follows, then
the payload. In an exchange each guest sends its payload, and gets everybody's back; or the text of the
error that all ranks get.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time

from pycomm.admission import frames
from pycomm.admission.deadline import Deadline
from pycomm.admission.door import Door, knock
from pycomm.admission.handshake import Dialer, Identity, Refused, Visitor
from pycomm.errors import Error, InvalidArgument, Mismatch, PeerLost, TimedOut, ranks_text
from pycomm.nics import is_loopback

PURPOSE = "rendezvous"
GRACE_S = 2.0  # a guest waits so much longer than the host, whose error says more
DIAL_S = 1.0  # for one attempt at one address
DATA, ERROR = b"D", b"E"
ERRORS: dict[str, type[Error]] = {e.__name__: e for e in (InvalidArgument, Mismatch, PeerLost, TimedOut)}

Address = tuple[str, int]


class Host:
    """Rank 0's end. Listens until all have come."""

    def __init__(self, identity: Identity, listeners: list[socket.socket], deadline: Deadline) -> None:
        self.rank = 0
        self.size = identity.size
        self.secret = identity.secret
        self._deadline = deadline
        self._guests: dict[int, socket.socket] = {}
        self._changed = threading.Condition()
        self._door = Door(identity, listeners, self._admit)

    @property
    def address(self) -> str | None:
        """See Bootstrap."""
        return next(filter(None, map(_own_address, self._guests.values())), None)

    def wait(self, hint: str = "") -> None:
        """Returns when all have come. Raises TimedOut, naming those that have not."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._guests) == self.size - 1, self._deadline.left_s())
            missing = [rank for rank in range(1, self.size) if rank not in self._guests]
        self._door.close()
        if missing:
            have = f"{ranks_text(missing)} of {self.size} had not come after {self._deadline.text()}"
            self._fail(TimedOut(f"init: {have}; are they running, and can they reach rank 0?{hint}"))

    def all_gather(self, payload: bytes) -> list[bytes]:
        """See Bootstrap."""
        payloads: dict[int, bytes] = {0: payload}
        with selectors.DefaultSelector() as selector:
            for rank, sock in self._guests.items():
                selector.register(sock, selectors.EVENT_READ, rank)
            while len(payloads) < self.size:
                ready = selector.select(self._deadline.left_s())
                if not ready:
                    missing = [rank for rank in range(self.size) if rank not in payloads]
                    after = self._deadline.text()
                    self._fail(
                        TimedOut(
                            f"init: {ranks_text(missing)} of {self.size} came, then said nothing; {after}"
                        )
                    )
                for key, _ in ready:
                    selector.unregister(key.fileobj)
                    payloads[key.data] = self._receive(key.data)
        everything = [payloads[rank] for rank in range(self.size)]
        packed = DATA + _pack(everything)
        for rank in self._guests:
            self._send(rank, packed)
        return everything

    def close(self) -> None:
        """See Bootstrap."""
        self._door.close()
        for sock in self._guests.values():
            sock.close()

    def _admit(self, visitor: Visitor, sock: socket.socket) -> None:
        refusal: Error | None = None
        with self._changed:
            if visitor.size != self.size:
                refusal = Mismatch(
                    f"init: rank {visitor.rank} was started as one of {visitor.size}, rank 0 as one of "
                    f"{self.size}"
                )
            elif not 0 < visitor.rank < self.size or visitor.rank in self._guests:
                refusal = InvalidArgument(f"init: there are two ranks {visitor.rank}: give each its own")
            elif visitor.purpose == PURPOSE:
                self._guests[visitor.rank] = sock
                self._changed.notify_all()
                return
        with contextlib.suppress(OSError), sock:
            if refusal:
                frames.send(sock, _error(refusal), Deadline(0.1))

    def _receive(self, rank: int) -> bytes:
        try:
            return frames.receive(self._guests[rank], self._deadline)
        except TimeoutError:
            self._fail(
                TimedOut(f"init: rank {rank} of {self.size} stopped in mid-message; {self._deadline.text()}")
            )
        except OSError:
            self._fail(_left(rank, self.size))
        raise AssertionError("unreachable")

    def _send(self, rank: int, frame: bytes) -> None:
        try:
            frames.send(self._guests[rank], frame, self._deadline.within(60))
        except OSError:
            self._fail(_left(rank, self.size))

    def _fail(self, error: Error) -> None:
        """Tells every guest what this rank is about to raise."""
        for sock in self._guests.values():
            with contextlib.suppress(OSError):
                frames.send(sock, _error(error), Deadline(1.0))
        raise error


class Guest:
    """The end of every other rank."""

    def __init__(self, identity: Identity, sock: socket.socket, deadline: Deadline) -> None:
        self.rank = identity.rank
        self.size = identity.size
        self.secret = identity.secret
        self._sock = sock
        self._deadline = Deadline(deadline.left_s() + GRACE_S)
        self._timeout = deadline.text()
        self.address = _own_address(sock)

    def all_gather(self, payload: bytes) -> list[bytes]:
        """See Bootstrap."""
        try:
            frames.send(self._sock, payload, self._deadline)
            answer = frames.receive(self._sock, self._deadline)
        except TimeoutError:
            raise TimedOut(
                f"init: rank 0 of {self.size} came, then said nothing for {self._timeout}"
            ) from None
        except OSError:
            raise _left(0, self.size) from None
        if answer[:1] == ERROR:
            kind, _, text = answer[1:].decode(errors="replace").partition(" ")
            raise ERRORS.get(kind, Error)(text)
        return _unpack(answer[1:])

    def close(self) -> None:
        """See Bootstrap."""
        self._sock.close()


def dial(identity: Identity, addresses: list[Address], deadline: Deadline) -> socket.socket:
    """One attempt at each address. Raises ConnectionError: Refused where somebody else answered."""
    refusal: Refused | None = None
    for host, port in addresses:
        limit = deadline.within(DIAL_S)
        try:
            sock = socket.create_connection((host, port), limit.left_s() or 0.001)
        except OSError:
            continue
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            knock(sock, Dialer(identity, PURPOSE, 0), limit)
            return sock
        except OSError as why:
            sock.close()
            refusal = Refused(f"at {host}:{port} {why}")
    tried = ", ".join(f"{host}:{port}" for host, port in addresses)
    raise refusal or ConnectionRefusedError(f"nobody listens at {tried}")


def pause(attempt: int, deadline: Deadline) -> None:
    """Between two attempts: short at first, for ranks start at nearly the same time."""
    time.sleep(min(0.002 * 1.5 ** min(attempt, 10), 0.1, deadline.left_s()))


def _own_address(sock: socket.socket) -> str | None:
    address = str(sock.getsockname()[0])
    return None if is_loopback(address) else address


def _left(rank: int, size: int) -> PeerLost:
    return PeerLost(f"init: rank {rank} of {size} left before all had met; see what it says")


def _error(error: Error) -> bytes:
    return ERROR + f"{type(error).__name__} {error}".encode()


def _pack(payloads: list[bytes]) -> bytes:
    head = struct.pack(f"!I{len(payloads)}I", len(payloads), *map(len, payloads))
    return head + b"".join(payloads)


def _unpack(data: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("!I", data)
    lengths = struct.unpack_from(f"!{count}I", data, 4)
    start = 4 + 4 * count
    payloads = []
    for length in lengths:
        payloads.append(data[start : start + length])
        start += length
    return payloads
