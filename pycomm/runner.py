"""The runner: checks what can be wrong with a call, looks up what was prepared, and hands it to the core."""

from __future__ import annotations

from collections.abc import Mapping
from os import getpid
from typing import Any

from numpy import ascontiguousarray, empty, may_share_memory, ndarray, uint16

from pycomm import _C
from pycomm.buffers import Array, as_array, check_result, offset_of
from pycomm.call import Call, CallTable, Key
from pycomm.errors import Error, InvalidArgument
from pycomm.planning import Planning
from pycomm.work import Work
from pycomm.world import World


class Runner:
    """The working part of one communicator."""

    def __init__(self, world: World, ranks: tuple[int, ...], id: int, timeout_s: float) -> None:
        self._rank = ranks.index(world.fabric.rank)
        self.planning = Planning(world, ranks)
        self._core: _C.Communicator | None = _C.Communicator(
            world.fabric, id, list(ranks), world.labels(ranks), world.profile.limits.slice_bytes
        )
        self.hot = _C.HotCalls(self._core, timeout_s)
        self.table = CallTable(self._rank, len(ranks), self.planning.bind, self.hot)
        self._calls = self.table.calls
        self._timeout_s = timeout_s
        self._pid = world.pid
        world.members.add(self)

    def run(
        self, key: tuple[Any, ...], x: Array, out: object, async_op: bool, timeout_s: float | None
    ) -> Any:
        """Every collective comes through here that is not a hot call (`_C.hot`): the first of its kind, and
        those with buffers or options out of the ordinary.
        """
        core = self._enter(key[0].name)
        try:
            call, source, target, result = self._ready(core, key, x, out, timeout_s)
            limit = self._timeout_s if timeout_s is None else timeout_s
            if async_op:
                operation = core.start(call.prepared, source, target, limit)
                return Work(core, operation, result, call.kind.name)
            core.run(call.prepared, source, target, limit)
            return result
        finally:
            core.leave()

    def persist(self, key: tuple[Any, ...], x: Array, out: object, timeout_s: float | None) -> _C.Persistent:
        """The same call, to be made again and again. Raises InvalidArgument where each would need a copy."""
        what = key[0].name
        core = self._enter(what)
        try:
            if not x.flags.c_contiguous:
                raise InvalidArgument(
                    f"{what}: a persistent operation cannot read a strided array: pass a contiguous one, and "
                    f"copy into it"
                )
            call, source, target, result = self._ready(core, key, x, out, timeout_s)
            if target is not None and call.kind.in_place is None and may_share_memory(x, target):
                raise InvalidArgument(f"{what}: in place each call would need a copy: pass memory apart")
        finally:
            core.leave()
        limit = self._timeout_s if timeout_s is None else timeout_s
        return _C.persistent(self.hot, call.prepared, (source, target, result), limit, what, self.refuse)

    def refuse(self, what: str) -> None:
        """Raises the error that says why a call cannot be made, after it could not."""
        self.check_usable(what)
        raise self._concurrent(what)

    def _enter(self, what: str) -> _C.Communicator:
        """The core, in which this thread is now inside, until it leaves."""
        core = self._core
        if core is None or getpid() != self._pid:
            raise self._unusable(what)
        if not core.enter():
            raise self._concurrent(what)
        return core

    def _ready(
        self, core: _C.Communicator, key: tuple[Any, ...], x: Array, out: object, timeout_s: float | None
    ) -> tuple[Call, Any, Any, Any]:
        """The prepared call; its input and output as the core takes them; what the caller gets."""
        if timeout_s is not None:
            _checked(timeout_s, key[0].name)
        try:
            call = self._calls.get(key) or self._prepare(core, key, timeout_s)
        except TypeError:
            call = self._prepare(core, _hashable(key), timeout_s)
        flags = x.flags
        if not flags.c_contiguous:
            x = self._contiguous(call, x, out)
        source: Any = x
        target: Any = None
        if not call.gives:
            pass
        elif out is None:
            target = empty(call.shape, call.dtype)
        elif out is x and call.in_place and flags.writeable:
            target = x
        else:
            source, target = self._with_out(call, x, out)
        result = target
        if call.as_bits:
            source = source.view(uint16)
            target = None if target is None else target.view(uint16)
        return call, source, target, result

    def check_usable(self, what: str) -> None:
        """Raises the error that says why it cannot be used, if it cannot."""
        if self._core is None or getpid() != self._pid:
            raise self._unusable(what)

    def close(self) -> None:
        """Ends it. Idempotent."""
        core, self._core = self._core, None
        if core is not None and getpid() == self._pid:
            core.close()
            self.hot.close()

    def _prepare(self, core: _C.Communicator, key: tuple[Any, ...], timeout_s: float | None) -> Call:
        self.planning.timeout_s = self._timeout_s if timeout_s is None else _checked(timeout_s, key[0].name)
        return self.table.prepare(core, Key(*key))

    def _contiguous(self, call: Call, x: Array, out: object) -> Array:
        """A copy of a strided input; in place there is none."""
        if out is x:
            check_result(x, x.shape, x.dtype, call.kind.name)
        return ascontiguousarray(x)

    def _with_out(self, call: Call, x: Array, out: object) -> tuple[Array, Array]:
        """The caller's output, checked, and the input, copied where working in place would spoil it."""
        if type(out) is ndarray and out.dtype == call.dtype and out.shape == call.shape:
            flags = out.flags
            if flags.c_contiguous and flags.writeable and not may_share_memory(x, out):
                return x, out
        what = call.kind.name
        target = as_array(out, None if hasattr(out, "dtype") else call.dtype, f"{what}: out")
        check_result(target, call.shape, call.dtype, what)
        small, large = (x, target) if x.nbytes <= target.nbytes else (target, x)
        offset = offset_of(small, large)
        if offset is None:
            return x, target
        if call.kind.in_place is None:
            return x.copy(), target
        if offset != call.kind.in_place(self._rank, small.nbytes):
            raise InvalidArgument(
                f"{what}: out overlaps the input, but not as in place: pass the very same memory, or "
                f"memory apart"
            )
        return x, target

    def _unusable(self, what: str) -> Error:
        if self._core is None:
            return InvalidArgument(
                f"{what}: the communicator is closed: call it before close(), or pycomm.init() anew"
            )
        return InvalidArgument(
            f"{what}: this process ({getpid()}) was forked from the one that called pycomm.init "
            f"({self._pid}): "
            f"call it there, or start processes with multiprocessing's spawn and pycomm.init in each"
        )

    def _concurrent(self, what: str) -> Error:
        return InvalidArgument(
            f"{what}: another thread is inside a call on this communicator, and the ranks could order "
            f"the two unlike: "
            f"give each thread a communicator of its own, comm.split(0)"
        )


def _hashable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key with a dict of algorithms as pairs. Raises InvalidArgument for what is no argument at all."""
    *rest, algorithm = key
    if isinstance(algorithm, Mapping):
        algorithm = tuple(sorted(algorithm.items()))
    try:
        hash((*rest, algorithm))
    except TypeError:
        raise InvalidArgument(
            f"{key[0].name}: op={key[3]!r}, root={key[4]!r}, algorithm={algorithm!r}: not all are names"
        ) from None
    return (*rest, algorithm)


def _checked(timeout_s: float, what: str) -> float:
    if not 0 < timeout_s < float("inf"):
        raise InvalidArgument(f"{what}: timeout_s={timeout_s!r} is not a positive number of seconds")
    return timeout_s
