"""Who sits where in the tree of the rendezvous: rank 0 gives each rank that comes a parent, which has come
before it, listens, and still has a seat.

Up to `FLAT` ranks all sit with rank 0. Beyond that nobody has more than `FANOUT` children, save rank 0, which
keeps `SPARE` seats for ranks that reach none of the parents. The order of arrival decides, so nobody waits
for a parent that has yet to come; and n ranks are about log n / log `FANOUT` levels.
"""

from __future__ import annotations

from dataclasses import dataclass

from pycomm.errors import InvalidArgument, PeerLost

FLAT = 64  # ranks that need no tree
FANOUT = 32
SPARE = 31  # so that rank 0 never has more than 63 children, as in the largest flat job

Address = tuple[str, int]


@dataclass(frozen=True)
class Caller:
    """A rank at rank 0's door. `token` tells its process from another that takes itself for the same rank;
    `at` is where it would listen; `near` says that it came over loopback, where only this host reaches it.
    """

    rank: int
    token: str
    at: Address | None
    near: bool


@dataclass(frozen=True)
class Seat:
    """With which parent, and where that listens; `inner`: the rank shall listen for children of its own."""

    parent: int
    at: Address | None
    inner: bool


class Seats:
    """Rank 0's book of who has come and with whom each of them sits. `place` is for one thread, the rest for
    any.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._flat = size <= FLAT
        self._callers: dict[int, Caller] = {}
        self._parents: dict[int, int] = {}
        self._free = {0: size - 1 if self._flat else FANOUT}  # seats, by parent, in the order of arrival
        self._spare = SPARE
        self._unreached: dict[int, set[int]] = {}  # by rank: parents that it was given and could not reach

    def place(self, caller: Caller) -> Seat:
        """Seats a rank, or seats it elsewhere when it comes again.

        Raises:
            InvalidArgument: another process with its number has come before.
            PeerLost: it reaches nobody who has a seat.
        """
        rank = caller.rank
        before = self._callers.get(rank)
        if not 0 < rank < self.size or (before is not None and before.token != caller.token):
            raise InvalidArgument(f"init: there are two ranks {rank}: give each its own")
        if before is not None:
            left = self._parents[rank]
            self._free[left] += 1
            if left != 0:
                self._unreached.setdefault(rank, set()).add(left)
        self._callers[rank] = caller
        parent = self._parent_for(caller)
        self._parents[rank] = parent
        listens = not self._flat and caller.at is not None
        inner = rank in self._free or (listens and self._more_seats_for(caller))
        if inner:
            self._free.setdefault(rank, FANOUT)
        return Seat(parent, self._callers[parent].at if parent else None, inner)

    def missing(self) -> list[int]:
        """The ranks that have not come."""
        return [rank for rank in range(1, self.size) if rank not in self._parents]

    def blamed(self, silent: set[int]) -> list[int]:
        """Of ranks that nothing is heard of those whose parent is heard of: the others may only be behind
        them.
        """
        return sorted(rank for rank in silent if self._parents.get(rank, 0) not in silent)

    def _parent_for(self, caller: Caller) -> int:
        unreached = self._unreached.get(caller.rank, set())
        for parent, free in self._free.items():
            if free > 0 and parent not in unreached and self._reaches(caller, parent):
                if self._is_under(parent, caller.rank):  # it comes again, and has children already
                    continue
                self._free[parent] -= 1
                return parent
        if self._spare == 0:
            raise PeerLost(
                f"init: rank {caller.rank} reaches none of the ranks that would pass its messages on to rank "
                f"0: in jobs of more than {FLAT} ranks every host must reach the others, not rank 0's alone"
            )
        self._spare -= 1
        return 0

    def _reaches(self, caller: Caller, parent: int) -> bool:
        return parent == 0 or caller.near or not self._callers[parent].near

    def _is_under(self, rank: int, above: int) -> bool:
        while rank not in (0, above):
            rank = self._parents[rank]
        return rank == above

    def _more_seats_for(self, caller: Caller) -> bool:
        """Whether ranks like this one have fewer seats than may still come."""
        to_come = self.size - 1 - len(self._callers)
        return sum(free for parent, free in self._free.items() if self._reaches(caller, parent)) < to_come
