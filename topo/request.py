"""Requests: what a plan depends on, and nothing else, so that every rank plans the same without talking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pycomm.topo.outline import COLLECTIVES, blocks_of
from pycomm.topo.traffic import Widths

DTYPE_BYTES = {
    **{f"{sign}int{8 * size}": size for sign in ("", "u") for size in (1, 2, 4, 8)},
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
REDUCTIONS = ("sum", "product", "min", "max", "avg")
ROUNDING = ("sum", "product", "avg")  # their incomplete results are kept wider in 16-bit floats
ROOTED = ("broadcast", "reduce")
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
LEAST_BUCKET_BYTES = 64

Algorithm = str | tuple[tuple[str, str], ...] | None  # as a key: a dict has become sorted pairs


@dataclass(frozen=True)
class Request:
    """The key of a plan.

    Attributes:
        collective: A row of `outline.COLLECTIVES`, or "barrier".
        root: The rank that a rooted collective starts from or ends at; else 0.
        widths: The class of the dtype and reduction: bytes of an element, complete and incomplete.
        bucket_bytes: A power of two: the bytes of the larger of a rank's buffers, rounded up. Planned for.
        algorithm: What the caller asked for.
    """

    collective: str
    root: int
    widths: Widths
    bucket_bytes: int
    algorithm: Algorithm

    @property
    def moves(self) -> str:
        """The collective that is run: a barrier is an all_reduce of no elements."""
        return "all_reduce" if self.collective == "barrier" else self.collective

    def count(self, world_size: int) -> int:
        """Elements of a block, the unit callers count in, at `bucket_bytes`."""
        return max(1, self.bucket_bytes // (self.widths.storage * blocks_of(self.moves, world_size)))


def request(
    collective: str, world_size: int, count: int, dtype: str, reduction: str | None, root: int
) -> Request:
    """Check what a caller wants and reduce it to what a plan depends on.

    Raises:
        ValueError: For an unknown name, a count below 0, a root that is no rank, or a reduction that is
            missing or has no meaning.
    """
    _check_name("collective", collective, (*COLLECTIVES, "barrier"))
    _check_name("dtype", dtype, tuple(DTYPE_BYTES))
    moves = "all_reduce" if collective == "barrier" else collective
    if collective in REDUCING:
        if reduction is None:
            raise ValueError(f"{collective} needs a reduction: {', '.join(REDUCTIONS)}")
        _check_name("reduction", reduction, REDUCTIONS)
    elif reduction is not None:
        raise ValueError(f"{collective} reduces nothing: leave out reduction={reduction!r}")
    if count < 0:
        raise ValueError(f"a count is a number of elements from 0 on, not {count}")
    if not 0 <= root < world_size:
        raise ValueError(f"root {root} is no rank: there are ranks 0 … {world_size - 1}")
    storage = DTYPE_BYTES[dtype]
    widens = dtype in ("float16", "bfloat16") and reduction in ROUNDING
    bucket = bucket_bytes(count * storage * blocks_of(moves, world_size))
    widths = Widths(storage, 4 if widens else storage)
    return Request(collective, root if collective in ROOTED else 0, widths, bucket, None)


def bucket_bytes(size: int) -> int:
    """The next power of two, at least 64: sizes in between share a plan."""
    return max(LEAST_BUCKET_BYTES, 1 << max(0, size - 1).bit_length())


def algorithm_key(algorithm: str | Mapping[str, str] | None) -> Algorithm:
    """What a caller passes as `algorithm=`, as part of a key.

    Raises:
        ValueError: If it is neither a name nor a mapping from names to names.
    """
    if algorithm is None or isinstance(algorithm, str):
        return algorithm
    if isinstance(algorithm, Mapping):
        pairs = sorted(algorithm.items())
        if pairs and all(isinstance(word, str) for pair in pairs for word in pair):
            return tuple(pairs)
    example = '{"local": "direct", "rail": "ring"}'
    raise ValueError(f"algorithm= takes a name or a dict such as {example}, not {algorithm!r}")


def _check_name(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}; known are {', '.join(known)}")
