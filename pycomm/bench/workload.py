"""One collective on one rank: its buffers, what they hold, and what they must hold afterwards."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pycomm.bench.bandwidth import BUSBW_FACTORS
from pycomm.bench.pattern import Pattern

COLLECTIVES = tuple(BUSBW_FACTORS)
REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"})
ROOTED = frozenset({"broadcast", "reduce"})
PARTITIONED = frozenset({"reduce_scatter", "all_gather", "all_to_all"})
"""Collectives whose vector is cut into one share a rank."""

_POISON = 113  # fits int8, and no pattern or result holds it at every place

_DTYPES = {
    "char": "int8",
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "double": "float64",
}


def parse_dtype(name: str) -> np.dtype[Any]:
    """A dtype by NumPy's or nccl-tests' name. `bfloat16` needs the package ml_dtypes."""
    name = _DTYPES.get(name, name)
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ModuleNotFoundError:
            raise ValueError("NumPy knows bfloat16 only through ml_dtypes: pip install ml_dtypes") from None
        dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return dtype
    try:
        dtype = np.dtype(name)
    except TypeError:
        raise ValueError(
            f"{name!r} is not a dtype: use int8 … uint64, bfloat16, float16, float32 or float64"
        ) from None
    if dtype.kind not in "iuf":
        raise ValueError(f"{name!r} cannot be reduced: use an integer or floating-point dtype")
    return dtype


def element_count(collective: str, size_bytes: int, dtype: np.dtype[Any], ranks: int) -> int:
    """Elements of the whole operation, of at least `size_bytes`, rounded up so that all shares are equal."""
    if collective == "barrier":
        return 0
    grain = dtype.itemsize * (ranks if collective in PARTITIONED else 1)
    return -(-size_bytes // grain) * grain // dtype.itemsize


@dataclass(frozen=True)
class Workload:
    """What one rank does in one collective. `count` is the elements of S (see bandwidth.py)."""

    collective: str
    count: int
    dtype: np.dtype[Any]
    rank: int
    ranks: int
    op: str = "sum"
    root: int = 0

    @property
    def size_bytes(self) -> int:
        """S of the definitions of algbw and busbw."""
        return self.count * self.dtype.itemsize

    @property
    def share(self) -> slice:
        """This rank's part of a partitioned vector."""
        length = self.count // self.ranks
        return slice(self.rank * length, (self.rank + 1) * length)

    @cached_property
    def operand(self) -> NDArray[Any]:
        """What this rank brings. (The root alone brings something to a broadcast.)"""
        count = self.count // self.ranks if self.collective == "all_gather" else self.count
        if self.collective == "broadcast" and self.rank != self.root:
            return np.full(count, _POISON, self.dtype)
        return self._pattern.operand(self.rank, 0, count)

    def expected(self) -> NDArray[Any] | None:
        """What this rank must hold afterwards; None where it gets no result."""
        share = self.share
        length = share.stop - share.start
        match self.collective:
            case "all_reduce":
                return self._pattern.reduced(0, self.count)
            case "reduce":
                return self._pattern.reduced(0, self.count) if self.rank == self.root else None
            case "reduce_scatter":
                return self._pattern.reduced(share.start, length)
            case "broadcast":
                return self._pattern.operand(self.root, 0, self.count)
            case "all_gather":
                return self._from_everyone(0, length)
            case "all_to_all":
                return self._from_everyone(share.start, length)
        return None

    def _from_everyone(self, start: int, count: int) -> NDArray[Any]:
        return np.concatenate([self._pattern.operand(rank, start, count) for rank in range(self.ranks)])

    @property
    def _pattern(self) -> Pattern:
        op = self.op if self.collective in REDUCING else "max"  # its values have the widest spread
        return Pattern(self.ranks, op, self.dtype)


class Buffers:
    """Source and target of a workload: two arrays, or two views of one."""

    def __init__(self, work: Workload, *, in_place: bool) -> None:
        self.work = work
        self.in_place = in_place
        whole = np.empty(work.count, work.dtype)
        self.source: NDArray[Any] = whole
        self.target: NDArray[Any] = whole
        match work.collective, in_place:
            case "reduce_scatter", True:
                self.target = whole[work.share]
            case "all_gather", True:
                self.source = whole[work.share]
            case "reduce_scatter", False:
                self.target = np.empty(work.count // work.ranks, work.dtype)
            case "all_gather", False:
                self.source = np.empty(work.count // work.ranks, work.dtype)
            case _, False:
                self.target = np.empty(work.count, work.dtype)
        self.poison()
        self.refill()

    def refill(self) -> None:
        """Writes the source anew: what a call destroyed in place, and what a cache would remember."""
        np.copyto(self.source, self.work.operand)

    def poison(self) -> None:
        """Spoils the target, so that an element nobody writes is counted as wrong."""
        self.target.fill(_POISON)

    def wrong(self) -> int:
        """How many elements of the target are not what they must be."""
        expected = self.work.expected()
        return 0 if expected is None else int(np.count_nonzero(self.target != expected))
