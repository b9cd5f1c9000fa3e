"""Persistent operations: a collective on the same buffers, made ready once and done as often as wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy import ndarray

from pycomm._C import Persistent
from pycomm.buffers import as_array
from pycomm.call import NOTHING
from pycomm.collectives import KINDS, SUM
from pycomm.own_algorithm import AUTO
from pycomm.planning import Algorithm

if TYPE_CHECKING:
    from pycomm.runner import Runner

__all__ = ["Persistent", "PersistentCalls"]


class PersistentCalls:
    """One method for each collective, which takes the same arguments but for `async_op`, makes everything
    ready, and sends nothing. What it returns keeps the buffers; an input that would have to be copied for
    each call (strided, or overlapping in a way that is not in place) is refused.

    Example::

        op = comm.all_reduce_init(gradients, out=gradients)
        for batch in batches:
            compute(batch, gradients)
            op()                        # or op.start(), something else, op.wait()
    """

    _runner: Runner

    def all_reduce_init(
        self,
        x: object,
        op: str = SUM,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        timeout_s: float | None = None,
    ) -> Persistent:
        """An all_reduce to be done again and again."""
        return self._persist(("all_reduce", op, 0, algorithm), x, out, dtype, timeout_s)

    def reduce_scatter_init(
        self,
        x: object,
        op: str = SUM,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        timeout_s: float | None = None,
    ) -> Persistent:
        """A reduce_scatter to be done again and again."""
        return self._persist(("reduce_scatter", op, 0, algorithm), x, out, dtype, timeout_s)

    def all_gather_init(
        self,
        x: object,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        timeout_s: float | None = None,
    ) -> Persistent:
        """An all_gather to be done again and again."""
        return self._persist(("all_gather", SUM, 0, algorithm), x, out, dtype, timeout_s)

    def all_to_all_init(
        self,
        x: object,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        timeout_s: float | None = None,
    ) -> Persistent:
        """An all_to_all to be done again and again; never in place."""
        return self._persist(("all_to_all", SUM, 0, algorithm), x, out, dtype, timeout_s)

    def broadcast_init(
        self,
        x: object,
        root: int = 0,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        timeout_s: float | None = None,
    ) -> Persistent:
        """A broadcast to be done again and again."""
        return self._persist(("broadcast", SUM, root, algorithm), x, out, dtype, timeout_s)

    def reduce_init(
        self,
        x: object,
        root: int = 0,
        op: str = SUM,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        timeout_s: float | None = None,
    ) -> Persistent:
        """A reduce to be done again and again."""
        return self._persist(("reduce", op, root, algorithm), x, out, dtype, timeout_s)

    def barrier_init(self, *, timeout_s: float | None = None) -> Persistent:
        """A barrier to be passed again and again."""
        return self._persist(("barrier", SUM, 0, AUTO), NOTHING, None, None, timeout_s)

    def _persist(
        self,
        asked: tuple[str, str, int, Algorithm],
        x: object,
        out: object,
        dtype: object,
        timeout_s: float | None,
    ) -> Persistent:
        name, op, root, algorithm = asked
        array: Any = x if type(x) is ndarray and dtype is None else as_array(x, dtype, name)
        key = (KINDS[name], array.dtype, array.shape, op, root, algorithm)
        return self._runner.persist(key, array, array if out is x else out, timeout_s)
