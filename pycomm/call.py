"""Prepared calls: what planning, connecting and binding have made of a request, kept for the next one
like it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pycomm._C import Bound, Communicator, HotCalls, Prepared, Request
from pycomm.buffers import dtype_name
from pycomm.collectives import REDUCTIONS, Kind, Shape
from pycomm.errors import InvalidArgument

NOTHING = np.empty(0, np.uint8)  # what a barrier moves
TABLE_LIMIT = 4096  # requests of so many kinds and more start the table anew


class Key(NamedTuple):
    """What a call is looked up by, in this order; in the hot path a plain tuple."""

    kind: Kind
    dtype: np.dtype[Any]
    shape: Shape
    op: str
    root: int
    algorithm: Any  # a name, a tuple of (level, name) pairs, or None


class Spec(NamedTuple):
    """A request as plan and core see it: without the shape. `elements` are those of one block."""

    collective: str
    elements: int
    dtype: str
    reduction: str
    root: int
    algorithm: Any


class Call(NamedTuple):
    """Ready to run."""

    kind: Kind
    prepared: Prepared
    shape: Shape  # of the result
    dtype: np.dtype[Any]
    gives: bool  # whether this rank gets a result
    in_place: bool  # whether `out=x` needs no further look
    as_bits: bool  # NumPy gives no buffer of this dtype: pass a view


class CallTable:
    """The prepared calls of one communicator; those that need no Python are in `hot` too."""

    def __init__(
        self, rank: int, size: int, bind: Callable[[Spec], tuple[Bound, Request]], hot: HotCalls
    ) -> None:
        self.calls: dict[tuple[Any, ...], Call] = {}
        self._bound: dict[Spec, Prepared] = {}
        self._rank = rank
        self._size = size
        self._bind = bind
        self._hot = hot

    def prepare(self, core: Communicator, key: Key) -> Call:
        """Makes the call for a key that is not in `calls` and puts it there.

        Raises:
            InvalidArgument: shape, op or root is wrong.
            Unsupported: the dtype cannot be sent.
        """
        kind = key.kind
        shape = kind.shape(key.shape, self._size)
        if key.op not in REDUCTIONS:
            raise InvalidArgument(
                f"{kind.name}: op={key.op!r} is no reduction: use one of {', '.join(REDUCTIONS)}"
            )
        if not isinstance(key.root, (int, np.integer)) or not 0 <= key.root < self._size:
            raise InvalidArgument(
                f"{kind.name}: root={key.root!r} is no rank of this communicator, whose ranks are 0 … "
                f"{self._size - 1}"
            )
        name = dtype_name(key.dtype, kind.name)
        count = prod(key.shape) // kind.in_blocks(self._size)
        spec = Spec(kind.name, count, name, key.op, int(key.root), key.algorithm)
        if spec not in self._bound:
            if len(self._bound) >= TABLE_LIMIT:
                self._bound.clear()
            self._bound[spec] = core.prepare(*self._bind(spec))
        prepared = self._bound[spec]
        gives = kind.name not in ("reduce", "barrier") or (kind.name == "reduce" and key.root == self._rank)
        in_place = shape == key.shape and kind.in_place is not None and kind.in_place(self._rank, 1) == 0
        call = Call(kind, prepared, shape, key.dtype, gives, in_place, name == "bfloat16")
        if len(self.calls) >= TABLE_LIMIT:
            self.calls.clear()
            self._hot.forget()
        self.calls[tuple(key)] = call
        overlap = None
        if kind.in_place is not None:
            overlap = kind.in_place(self._rank, key.dtype.itemsize * min(prod(key.shape), prod(shape)))
        passed = (key.dtype.num, *key[2:])
        self._hot.remember(kind.name, passed, prepared, shape if gives else None, overlap)
        return call

    def clear(self) -> None:
        """Forgets everything, as when an algorithm was installed."""
        self.calls.clear()
        self._bound.clear()
        self._hot.forget()
