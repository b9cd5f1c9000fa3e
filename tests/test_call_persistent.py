"""Persistent operations: every collective, in and out of place, again and again, between ordinary calls; and
what can be done wrong with them.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pycomm
from pycomm import Communicator, InvalidArgument, Mismatch, TimedOut, Topology
from pycomm.testing import threads

Array = np.ndarray[Any, np.dtype[Any]]
NAMES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce")


def fill(x: Array, rank: int, turn: int) -> None:
    x[...] = (np.arange(x.size).reshape(x.shape) * 3 + rank * 5 + turn) % 11


def both_ways(op: pycomm.Persistent, turn: int) -> Any:
    if turn % 2:
        return op()
    op.start()
    return op.wait()


@pytest.mark.parametrize("shape", [[1], [2], [3], [2, 2], [1, 2]], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name)
def test_each_does_what_the_call_does_again_and_again(shape: list[int], dtype: Any) -> None:
    def run(comm: Communicator) -> None:
        x = np.zeros((2 * comm.size, 3), dtype)
        for name in NAMES:
            call, make = getattr(comm, name), getattr(comm, f"{name}_init")
            op = make(x)
            results = []
            for turn in range(4):
                fill(x, comm.rank, turn)
                before = x.copy()
                expected = call(x)
                result = both_ways(op, turn)
                assert np.array_equal(result, expected), name
                assert (x == before).all()
                results.append(result)
            assert all(result is results[0] for result in results)

    threads(Topology.from_sizes(shape), run)


def test_in_place_and_into_an_array_of_ones_own() -> None:
    def run(comm: Communicator) -> None:
        x, y, raw = np.zeros(5), np.zeros(5), bytearray(40)
        outs: list[Any] = [x, y, raw]
        ops = [comm.all_reduce_init(x, "max", out=out) for out in outs]
        for turn in range(4):
            for op, out in zip(ops, outs, strict=True):
                fill(x, comm.rank, turn)
                expected = comm.all_reduce(x, "max")
                result = both_ways(op, turn)
                assert np.array_equal(np.frombuffer(out), expected)
                assert result is out or out is raw
        row = np.zeros((comm.size, 3))
        gather = comm.all_gather_init(row[comm.rank], out=row)
        scatter = comm.reduce_scatter_init(row.reshape(-1), out=row[comm.rank])
        for turn in range(4):
            fill(row[comm.rank], comm.rank, turn)
            expected = comm.all_gather(row[comm.rank])
            assert (both_ways(gather, turn) == expected).all()
            total = comm.reduce_scatter(row.reshape(-1))
            assert (both_ways(scatter, turn) == total).all()

    threads(3, run)


def test_roots_and_ranks_that_get_nothing() -> None:
    def run(comm: Communicator) -> None:
        x = np.zeros(4)
        for root in range(comm.size):
            reduce, broadcast = comm.reduce_init(x, root, "sum"), comm.broadcast_init(x, root, out=x)
            for turn in range(3):
                x[:] = comm.rank + turn
                result = both_ways(reduce, turn)
                assert (result is None) == (comm.rank != root)
                if result is not None:
                    assert result[0] == sum(range(comm.size)) + comm.size * turn
                assert both_ways(broadcast, turn)[0] == root + turn
        barrier = comm.barrier_init(timeout_s=20)
        assert [both_ways(barrier, turn) for turn in range(4)] == [None] * 4

    threads(3, run)


def test_several_under_way_at_once_between_ordinary_calls() -> None:
    def run(comm: Communicator) -> None:
        arrays = [np.zeros(size) for size in (1, 100, 70_000)]
        ops = [comm.all_reduce_init(x, out=x) for x in arrays]
        for turn in range(5):
            for x in arrays:
                x[:] = turn + comm.rank
            total = sum(turn + rank for rank in range(comm.size))
            for op in ops:
                op.start()
            work = comm.all_reduce(np.ones(3), async_op=True)
            assert comm.all_reduce(np.ones(3))[0] == comm.size
            assert all(op.done() for op in ops), "what was started earlier is done earlier"
            for op, x in zip(reversed(ops), reversed(arrays), strict=True):
                assert (op.wait() == total).all()
                assert (x == total).all()
                assert not op.done(), "it is not under way any more"
            assert work.wait()[0] == comm.size

    threads(2, run)


def test_what_is_wrong_is_refused_and_nothing_is_lost() -> None:
    def run(comm: Communicator) -> None:
        x = np.ones(4)
        op = comm.all_reduce_init(x)
        with pytest.raises(InvalidArgument, match=r"all_reduce: it is not under way: call start\(\)"):
            op.wait()
        op.start()
        for again in (op.start, op):
            with pytest.raises(InvalidArgument, match=r"all_reduce: it is under way already: call wait\(\)"):
                again()
        assert op.wait()[0] == comm.size
        with pytest.raises(InvalidArgument, match="not under way"):
            op.wait()
        with pytest.raises(TypeError, match="without arguments"):
            op(x)  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            op.wait("long")  # type: ignore[arg-type]
        wrong: list[tuple[Callable[[], object], str]] = [
            (lambda: comm.all_reduce_init(np.ones((4, 2))[:, 0]), "cannot read a strided array"),
            (lambda: comm.all_to_all_init(x, out=x), "in place each call would need a copy"),
            (lambda: comm.all_reduce_init(x, "plus"), "op='plus' is no reduction"),
            (lambda: comm.all_reduce_init(x, timeout_s=0), "timeout_s=0 is not a positive number"),
            (lambda: comm.all_reduce_init([1]), "list has no buffer"),
            (lambda: comm.all_reduce_init(x, out=np.empty(3)), "out has shape"),
            (lambda: comm.broadcast_init(x, 7), "root=7 is no rank"),
        ]
        for make, says in wrong:
            with pytest.raises(InvalidArgument, match=says):
                make()
        assert op()[0] == comm.size

    threads(2, run)


def test_after_close_it_is_refused_and_what_was_under_way_fails() -> None:
    over = threading.Barrier(2)

    def run(comm: Communicator) -> None:
        part = comm.split(0)
        assert part is not None
        op, pending = part.all_reduce_init(np.ones(2)), part.all_reduce_init(np.ones(2))
        op()
        if comm.rank == 0:  # the other never starts it
            pending.start()
        part.close()
        for call in (op, op.start):
            with pytest.raises(InvalidArgument, match="all_reduce: the communicator is closed: call"):
                call()
        if comm.rank == 0:
            with pytest.raises(InvalidArgument, match="closed before this operation was done"):
                pending.wait()
        with pytest.raises(InvalidArgument, match="the communicator is closed"):
            part.all_reduce_init(np.ones(2))
        over.wait(30)

    threads(2, run)


def test_it_may_be_used_by_any_thread_but_by_one_at_a_time() -> None:
    over = threading.Event()

    def run(comm: Communicator) -> None:
        op = comm.all_reduce_init(np.ones(2))
        op.start()
        waiter = threading.Thread(target=op.wait)
        waiter.start()
        waiter.join()
        if comm.rank == 1:
            over.wait(10)
            op()
            return
        refused: list[str] = []
        before = comm.counters().peers[1].sent_messages

        def intrude() -> None:
            while comm.counters().peers[1].sent_messages == before:
                pass
            for call in (op, op.start, lambda: comm.barrier_init()):
                try:
                    call()
                except InvalidArgument as error:
                    refused.append(str(error))
            over.set()

        other = threading.Thread(target=intrude)
        other.start()
        op()
        other.join()
        assert len(refused) == 3
        assert all("another thread is inside a call on this communicator" in text for text in refused)

    threads(2, run)


def test_deadlines_and_waits_that_end_early() -> None:
    late, over = threading.Event(), threading.Barrier(2)

    def run(comm: Communicator) -> None:
        op = comm.all_reduce_init(np.ones(2), timeout_s=20)
        hasty = comm.all_reduce_init(np.ones(2), timeout_s=0.2)
        if comm.rank == 0:
            op.start()
            with pytest.raises(TimedOut, match=r"all_reduce: not done after a wait of 0\.05 s; it goes on"):
                op.wait(timeout_s=0.05)
            late.set()
        else:
            late.wait(10)
            op.start()
        assert op.wait(10)[0] == 2
        if comm.rank == 0:
            hasty.start()
            with pytest.raises(TimedOut, match=r"did not finish within 0\.2 s"):
                hasty.wait()
            with pytest.raises(InvalidArgument, match="not under way"):
                hasty.wait()
        over.wait(30)

    threads(2, run)


def test_a_mismatch_is_found() -> None:
    over = threading.Barrier(2)

    def run(comm: Communicator) -> None:
        op = comm.all_reduce_init(np.ones(2 + comm.rank))
        with pytest.raises(Mismatch, match="the ranks disagree"):
            op()
        over.wait(30)

    threads(2, run)


def test_buffers_live_as_long_as_they_are_needed() -> None:
    """The operation holds its arrays; what is under way holds them though the operation is dropped."""

    def run(comm: Communicator) -> None:
        op = comm.all_reduce_init(np.full(1000, 1.0 + comm.rank))
        gc.collect()
        assert (op() == 3).all()
        y = np.zeros(200_000)
        dropped = comm.all_reduce_init(np.full(200_000, 1.0 + comm.rank), out=y)
        dropped.start()
        del dropped
        gc.collect()
        comm.barrier()
        assert (y == 3).all()
        raw = bytearray(8)
        kept = comm.all_reduce_init(raw)
        with pytest.raises(BufferError):
            raw.extend(b"more")
        del kept
        raw.extend(b"more")

    threads(2, run)


def test_a_forked_child_is_refused() -> None:
    comm = pycomm.init()
    op = comm.all_reduce_init(np.ones(2))
    assert op()[0] == 1
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for call in (op, op.start):
            try:
                call()
            except InvalidArgument as error:
                said.append(str(error))
        os.write(write, "|".join(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        texts = pipe.read().split("|")
    os.waitpid(child, 0)
    assert len(texts) == 2
    assert all(f"this process ({child}) was forked from the one that called pycomm.init" in t for t in texts)
    assert op()[0] == 1
    comm.close()
