"""Ranks, sizes and ports, read and checked."""

from __future__ import annotations

from collections.abc import Mapping

from pycomm.errors import InvalidArgument


def number(environ: Mapping[str, str], name: str) -> int:
    """A variable that is a whole number. Raises InvalidArgument."""
    try:
        return int(environ[name])
    except ValueError:
        raise InvalidArgument(f"init: {name}={environ[name]!r} is not a whole number") from None


def check_rank(rank: int, size: int) -> None:
    """Raises InvalidArgument where there is no such rank."""
    if size < 1:
        raise InvalidArgument(f"init: a job has at least 1 rank, not {size}")
    if not 0 <= rank < size:
        raise InvalidArgument(f"init: rank {rank} of {size} does not exist: ranks are 0 … {size - 1}")


def check(rank: int, size: int, port: int) -> None:
    """Raises InvalidArgument where there is no such rank or no such port."""
    check_rank(rank, size)
    if not 0 < port < 65536:
        raise InvalidArgument(f"init: {port} is not a port: choose one of 1 … 65535")
