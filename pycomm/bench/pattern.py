"""Data whose reduced result is exactly predictable: small whole numbers that differ by rank and place.

Every partial result stays a whole number that all dtypes hold exactly (at most 127 for up to 40 ranks, at
most 256 for up to 128), so a right result compares with `==` whatever the order of the reduction.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

OPS = ("sum", "product", "min", "max", "avg")

_PERIOD = 4093  # prime, so that no cut of a buffer into chunks or slices falls on the period


class Pattern:
    """What the ranks of a group bring to a reduction of this kind, and what comes of it."""

    def __init__(self, ranks: int, op: str, dtype: np.dtype[Any]) -> None:
        self._ranks = ranks
        self._op = op
        self._dtype = dtype

    def operand(self, rank: int, start: int, count: int) -> NDArray[Any]:
        """Elements `start` … `start + count` of what a rank brings."""
        return self._repeat(_tile(rank, self._ranks, self._op), start, count)

    def reduced(self, start: int, count: int) -> NDArray[Any]:
        """Elements `start` … `start + count` of the reduction of what all ranks bring."""
        return self._repeat(_reduced_tile(self._ranks, self._op), start, count)

    def _repeat(self, tile: NDArray[Any], start: int, count: int) -> NDArray[Any]:
        return np.resize(np.roll(tile.astype(self._dtype), -(start % _PERIOD)), count)


def _noise(salt: int) -> NDArray[np.int64]:
    """Numbers in 0 … 65535 that look random, the same everywhere (Knuth's multiplicative hash)."""
    index = np.arange(_PERIOD, dtype=np.uint32) + np.uint32(salt * _PERIOD % (1 << 32))
    noise: NDArray[np.int64] = ((index * np.uint32(2654435761)) >> np.uint32(16)).astype(np.int64)
    return noise


@cache
def _tile(rank: int, ranks: int, op: str) -> NDArray[np.int8]:
    noise = _noise(rank + 1)
    turn = (_noise(0) + rank) % ranks  # which of `ranks` parts this rank plays at each position
    if op == "product":
        tile = np.where(turn < 5, 1 + (noise & 1), 1)  # at most five 2s: no product exceeds 32
    elif op == "avg":
        # 1 … 3 from everybody, one takes 1 more and the next 1 less: the mean is a whole number.
        tile = 1 + _noise(0) // 7 % 3 + (turn == 0) - (turn == 1 % ranks)
    elif op == "sum":
        tile = noise % (4 if ranks <= 40 else 2)
    else:
        tile = noise % 101
    return np.asarray(tile, dtype=np.int8)


@cache
def _reduced_tile(ranks: int, op: str) -> NDArray[np.int64]:
    tiles = np.array([_tile(rank, ranks, op) for rank in range(ranks)], dtype=np.int64)
    if op == "avg":
        mean: NDArray[np.int64] = tiles.sum(axis=0) // ranks
        return mean
    reduction = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    tile: NDArray[np.int64] = reduction.reduce(tiles, axis=0)
    return tile
