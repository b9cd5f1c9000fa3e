"""What the rest of pycomm needs from a way of finding each other."""

from __future__ import annotations

from typing import Protocol


class Bootstrap(Protocol):
    """A few small exchanges among all ranks of a job, before there are transports."""

    @property
    def rank(self) -> int:
        """This rank, 0 … size-1."""

    @property
    def size(self) -> int:
        """The number of ranks in the job."""

    @property
    def secret(self) -> bytes:
        """Known to the ranks of the job and to nobody else."""

    @property
    def address(self) -> str | None:
        """This rank's own address, as others have met it at; None where none has from another machine."""

    def all_gather(self, payload: bytes) -> list[bytes]:
        """Every rank's payload, by rank. Bounded by a deadline; its error names the ranks that never came."""

    def close(self) -> None:
        """Gives back what it holds."""


class Alone:
    """A job of one rank."""

    rank = 0
    size = 1
    secret = b"nobody else is here"
    address = None

    def all_gather(self, payload: bytes) -> list[bytes]:
        """One payload."""
        return [payload]

    def close(self) -> None:
        """Nothing to give back."""
