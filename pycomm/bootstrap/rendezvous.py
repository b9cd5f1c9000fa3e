"""The rendezvous over TCP: rank 0 is the host, the others are its guests, in a tree (see `seats`).

Every guest first calls at rank 0's door and is told where to sit: there, or with another guest that listens.
Then frames go up and down the tree, a byte first that says what they are:

    answer  S {parent, at, inner}  with whom to sit, where that rank listens, whether others will sit with you
            E error
    up      B rank                 part of that rank's payload has come
            D rank payload         all of it
            E error                what all ranks shall raise
    down    D answer               what rank 0 has made of all payloads
            E error

What comes from a child is passed up as it is and at once, so rank 0 knows of each rank what it would know
were there no tree, and its errors name the same culprits.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections import deque
from dataclasses import asdict
from typing import NoReturn

from pycomm.admission import frames
from pycomm.admission.deadline import Deadline
from pycomm.admission.door import Door
from pycomm.admission.handshake import Identity, Visitor
from pycomm.bootstrap.bootstrap import Bootstrap, Merge
from pycomm.bootstrap.lines import Lines
from pycomm.bootstrap.seats import Caller, Seats
from pycomm.errors import Error, InvalidArgument, Mismatch, PeerLost, TimedOut, ranks_text
from pycomm.nics import is_loopback

PURPOSE = "rendezvous"
GRACE_S = 2.0  # a guest waits so much longer than the host, whose error says more
SEAT, BEGUN, DATA, ERROR = b"S", b"B", b"D", b"E"
ERRORS: dict[str, type[Error]] = {e.__name__: e for e in (InvalidArgument, Mismatch, PeerLost, TimedOut)}
RANK = struct.Struct("!I")


class Host(Bootstrap):
    """Rank 0's end. Listens until all have come and said something."""

    def __init__(self, identity: Identity, listeners: list[socket.socket], deadline: Deadline) -> None:
        self.rank = 0
        self.size = identity.size
        self.secret = identity.secret
        self.address: str | None = None
        self._deadline = deadline
        self._seats = Seats(identity.size)
        self._lines = Lines()
        self._payloads: dict[int, bytes] = {}
        self._begun: set[int] = set()  # of those below others, of whose payloads part has come
        self._door = Door(identity, listeners, self._admit)

    def wait(self, hint: str = "") -> None:
        """Returns when all have come. Raises TimedOut, naming those that have not."""
        while missing := self._seats.missing():
            if not self._receive():
                have = f"{ranks_text(missing)} of {self.size} had not come after {self._deadline.text()}"
                self._fail(TimedOut(f"init: {have}; are they running, and can they reach rank 0?{hint}"))

    def exchange(self, payload: bytes, merge: Merge) -> bytes:
        """See Bootstrap."""
        self._payloads[0] = payload
        while len(self._payloads) < self.size:
            if not self._receive():
                self._fail(self._silence())
        self._door.close()
        everything = [self._payloads[rank] for rank in range(self.size)]
        self._payloads.clear()
        self._begun.clear()
        try:
            answer = merge(everything)
        except Error as error:
            self._fail(error)
        for rank in self._lines.ranks():
            try:
                self._lines.send(rank, DATA + answer, self._deadline.within(60))
            except OSError:
                self._fail(left(rank, self.size))
        return answer

    def close(self) -> None:
        """See Bootstrap."""
        self._door.close()
        self._lines.close()

    def _receive(self) -> bool:
        """Takes in what comes next; False when the deadline has passed first."""
        time_s = self._deadline.left_s()
        got = self._lines.receive(time_s)
        for child, frame in got:
            if frame is None:
                self._fail(left(child, self.size))
            kind = frame[:1]
            if kind == ERROR:
                self._fail(_parsed(frame))
            (rank,) = RANK.unpack_from(frame, 1)
            if kind == BEGUN:
                self._begun.add(rank)
            elif kind == DATA:
                self._payloads[rank] = frame[1 + RANK.size :]
        return time_s > 0 or bool(got)

    def _silence(self) -> TimedOut:
        """Who has come, but not said all."""
        blamed = self._seats.blamed(set(range(self.size)) - self._payloads.keys())
        begun = [rank for rank in blamed if rank in self._begun.union(self._lines.begun())]
        silent = [rank for rank in blamed if rank not in begun]
        parts = [f"{ranks_text(silent)} of {self.size} came, then said nothing"] if silent else []
        parts += [f"{ranks_text(begun)} of {self.size} stopped in mid-message"] if begun else []
        return TimedOut(f"init: {', '.join(parts)}; {self._deadline.text()}")

    def _admit(self, visitor: Visitor, sock: socket.socket) -> None:
        """In the door's thread."""
        try:
            with contextlib.suppress(OSError):
                self.address = self.address or own_address(sock)
                answer, kept = self._answer(visitor, sock)
                frames.send(sock, answer, Deadline(1.0))
                if kept:
                    self._lines.add(visitor.rank, sock)
                    return
                self._lines.wake()
        except Error as refusal:
            with contextlib.suppress(OSError):
                frames.send(sock, _packed(refusal), Deadline(0.1))
        sock.close()

    def _answer(self, visitor: Visitor, sock: socket.socket) -> tuple[bytes, bool]:
        if visitor.purpose != PURPOSE:
            raise InvalidArgument(f"init: rank 0 is not met for {visitor.purpose!r}")
        if visitor.size != self.size:
            raise Mismatch(
                f"init: rank {visitor.rank} was started as one of {visitor.size}, rank 0 as one of "
                f"{self.size}"
            )
        token, _, port = visitor.note.partition(" ")
        host = str(sock.getpeername()[0])
        at = (host, int(port)) if port.isdecimal() else None
        seat = self._seats.place(Caller(visitor.rank, token, at, is_loopback(host)))
        return SEAT + json.dumps(asdict(seat)).encode(), seat.parent == 0

    def _fail(self, error: Error) -> NoReturn:
        """Tells every guest what this rank is about to raise."""
        _tell(self._lines, self._lines.ranks(), error)
        raise error


class Guest(Bootstrap):
    """The end of every other rank: passes on what its children say, and what they are told."""

    def __init__(
        self,
        identity: Identity,
        address: str | None,
        parent: tuple[int, socket.socket],
        listener: socket.socket | None,
        deadline: Deadline,
    ) -> None:
        """`parent`: its rank and the connection; `listener`: where children come, if any shall."""
        self.rank = identity.rank
        self.size = identity.size
        self.secret = identity.secret
        self.address = address
        self._parent = parent[0]
        self._deadline = Deadline(deadline.left_s() + GRACE_S)
        self._timeout = deadline.text()
        self._lines = Lines()
        self._lines.add(*parent)
        self._lines.receive(0)
        self._told: deque[bytes] = deque()  # by the parent
        self._begun: set[int] = set()  # children that are known to have said part of something
        self._door = Door(identity, [listener], self._admit) if listener else None

    def exchange(self, payload: bytes, merge: Merge) -> bytes:
        """See Bootstrap."""
        self._up(_from(DATA, self.rank, payload))
        self._begun.clear()
        while not self._told:
            time_s = self._deadline.left_s()
            if not self._receive(time_s) and time_s == 0:
                text = f"rank {self._parent} of {self.size} came, then said nothing for {self._timeout}"
                self._fail(TimedOut(f"init: {text}"))
        told = self._told.popleft()
        if told[:1] == ERROR:
            self._fail(_parsed(told))
        self._down(told)
        return told[1:]

    def close(self) -> None:
        """See Bootstrap."""
        if self._door:
            self._door.close()
        self._lines.close()

    def _receive(self, timeout_s: float) -> bool:
        """What children say goes up, what the parent says is kept. False when nothing came."""
        got = self._lines.receive(timeout_s)
        for rank, frame in got:
            said = _packed(left(rank, self.size)) if frame is None else frame
            if rank == self._parent:
                self._told.append(said)
            else:
                self._up(said)
        for rank in self._lines.begun():
            if rank not in self._begun and rank != self._parent:
                self._begun.add(rank)
                self._up(_from(BEGUN, rank))
        return bool(got)

    def _up(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):  # that the parent is gone will be received
            self._lines.send(self._parent, frame, self._deadline)

    def _down(self, frame: bytes) -> None:
        if self._door:  # all have come
            self._door.close()
        for rank in self._lines.ranks():
            if rank != self._parent:
                with contextlib.suppress(OSError):  # that a child is gone will be received
                    self._lines.send(rank, frame, self._deadline.within(60))

    def _admit(self, visitor: Visitor, sock: socket.socket) -> None:
        """In the door's thread."""
        if visitor.purpose == PURPOSE and visitor.size == self.size:
            with contextlib.suppress(OSError):
                frames.send(sock, SEAT, Deadline(1.0))
                self._lines.add(visitor.rank, sock)
                return
        sock.close()

    def _fail(self, error: Error) -> NoReturn:
        """Tells every child what this rank is about to raise."""
        _tell(self._lines, [rank for rank in self._lines.ranks() if rank != self._parent], error)
        raise error


def own_address(sock: socket.socket) -> str | None:
    """This side's address; None where it is one that only this host reaches."""
    address = str(sock.getsockname()[0])
    return None if is_loopback(address) else address


def raise_if_error(frame: bytes) -> None:
    """Raises the error that a frame tells of, if it does."""
    if frame[:1] == ERROR:
        raise _parsed(frame)


def left(rank: int, size: int) -> PeerLost:
    """The error that names a rank that ended."""
    return PeerLost(f"init: rank {rank} of {size} left before all had met; see what it says")


def _tell(lines: Lines, ranks: list[int], error: Error) -> None:
    for rank in ranks:
        with contextlib.suppress(OSError):
            lines.send(rank, _packed(error), Deadline(1.0))


def _from(kind: bytes, rank: int, payload: bytes = b"") -> bytes:
    return kind + RANK.pack(rank) + payload


def _packed(error: Error) -> bytes:
    return ERROR + f"{type(error).__name__} {error}".encode()


def _parsed(frame: bytes) -> Error:
    kind, _, text = frame[1:].decode(errors="replace").partition(" ")
    return ERRORS.get(kind, Error)(text)
