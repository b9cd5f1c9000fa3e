"""What the rest of pycomm needs from a way of finding each other."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

Merge: TypeAlias = Callable[[list[bytes]], bytes]


class Bootstrap(ABC):
    """A few small exchanges among all ranks of a job, before there are transports.

    Attributes:
        rank: This rank, 0 … size-1.
        size: The number of ranks in the job.
        secret: Known to the ranks of the job and to nobody else.
        address: This rank's own address, as others have met it at; None where none has from another machine.
    """

    rank: int
    size: int
    secret: bytes
    address: str | None

    @abstractmethod
    def exchange(self, payload: bytes, merge: Merge) -> bytes:
        """What rank 0's `merge` makes of every rank's payload, which it gets by rank: it is made once, and
        every rank gets it. An Error that `merge` raises is raised by every rank. Bounded by a deadline, whose
        error names the ranks that never came.
        """

    @abstractmethod
    def close(self) -> None:
        """Gives back what it holds."""

    def all_gather(self, payload: bytes) -> list[bytes]:
        """Every rank's payload, by rank."""
        return _unpacked(self.exchange(payload, _packed))


class Alone(Bootstrap):
    """A job of one rank."""

    rank = 0
    size = 1
    secret = b"nobody else is here"
    address = None

    def exchange(self, payload: bytes, merge: Merge) -> bytes:
        """Of one payload."""
        return merge([payload])

    def close(self) -> None:
        """Nothing to give back."""


def _packed(payloads: list[bytes]) -> bytes:
    head = struct.pack(f"!I{len(payloads)}I", len(payloads), *map(len, payloads))
    return head + b"".join(payloads)


def _unpacked(data: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("!I", data)
    lengths = struct.unpack_from(f"!{count}I", data, 4)
    start = 4 + 4 * count
    payloads = []
    for length in lengths:
        payloads.append(data[start : start + length])
        start += length
    return payloads
