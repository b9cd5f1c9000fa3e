"""The collectives as a caller sees them: shapes of the result, and which overlap of input and output is
in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pycomm.errors import InvalidArgument

SUM: Final = "sum"
PRODUCT: Final = "product"
MIN: Final = "min"
MAX: Final = "max"
AVG: Final = "avg"
REDUCTIONS = (SUM, PRODUCT, MIN, MAX, AVG)

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)  # compared by identity: it is part of the hot look-up's key
class Kind:
    """One collective. `n` is the number of ranks, a block is `count` elements.

    Attributes:
        name: As in the planner and the core.
        in_blocks: Blocks of the input, given n; the other blocks and shapes follow from it.
        result_shape: From the input's shape and n.
        in_place: Bytes from the start of the larger buffer to that of the smaller (both the same if
            equally large) where the two may share memory, from rank and the smaller's bytes; None: never.
    """

    name: str
    in_blocks: Callable[[int], int]
    result_shape: Callable[[Shape, int], Shape]
    in_place: Callable[[int, int], int] | None
    reduces: bool = False

    def shape(self, shape: Shape, n: int) -> Shape:
        """The result's shape. Raises InvalidArgument where the first dimension cannot be divided among
        n ranks.
        """
        if self.in_blocks(n) == n > 1 and (not shape or shape[0] % n):
            raise InvalidArgument(
                f"{self.name}: the first dimension of the input, of shape {shape}, is not a multiple of "
                f"the {n} ranks: "
                f"pad it, or cut it"
            )
        return self.result_shape(shape, n)


def _one(n: int) -> int:
    return 1


def _each(n: int) -> int:
    return n


def _same(shape: Shape, n: int) -> Shape:
    return shape


def _at_start(rank: int, nbytes: int) -> int:
    return 0


def _at_own_block(rank: int, nbytes: int) -> int:
    return rank * nbytes


KINDS = {
    kind.name: kind
    for kind in (
        Kind("all_reduce", _one, _same, _at_start, reduces=True),
        Kind("reduce", _one, _same, _at_start, reduces=True),
        Kind("broadcast", _one, _same, _at_start),
        Kind("all_gather", _one, lambda shape, n: (n, *shape), _at_own_block),
        Kind(
            "reduce_scatter",
            _each,
            lambda shape, n: (shape[0] // n, *shape[1:]) if shape else shape,
            _at_own_block,
            reduces=True,
        ),
        Kind("all_to_all", _each, _same, None),
        Kind("barrier", _one, _same, None),
    )
}
