"""Hot calls: which calls are made without Python, that each finds what was prepared for just it, and that all
others still get Python's checks.
"""

from __future__ import annotations

import inspect
import pickle
import pydoc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pycomm
from pycomm import Communicator, InvalidArgument, Topology
from pycomm.testing import threads

METHODS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "barrier")
Array = np.ndarray[Any, np.dtype[Any]]


@contextmanager
def python_calls(comm: Communicator) -> Iterator[list[str]]:
    """The names of the calls that go through Python meanwhile."""
    seen: list[str] = []
    run = comm._run

    def noted(key: Any, *rest: Any) -> Any:
        seen.append(key[0].name)
        return run(key, *rest)

    vars(comm)["_run"] = noted
    yield seen
    vars(comm)["_run"] = run


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def in_place(c: Communicator) -> Any:
    x = ones(4)
    return c.all_reduce(x, out=x)


def gather_in_place(c: Communicator) -> Any:
    y = ones(c.size, 3)
    return c.all_gather(y[c.rank], out=y)


def scatter_in_place(c: Communicator) -> Any:
    y = ones(c.size * 3)
    return c.reduce_scatter(y, out=y[3 * c.rank : 3 * c.rank + 3])


HOT: list[Callable[[Communicator], Any]] = [
    in_place,
    gather_in_place,
    scatter_in_place,
    lambda c: c.all_reduce(ones(4)),
    lambda c: c.all_reduce(ones(4), "sum"),
    lambda c: c.all_reduce(ones(4), op="".join(["m", "ax"])),  # equal to "max", and another object
    lambda c: c.all_reduce(ones(4), out=np.empty(4, np.float32)),
    lambda c: c.all_reduce(ones(2, 2), out=np.empty(4, np.float32)),
    lambda c: c.all_reduce(ones(3).astype(ml_dtypes.bfloat16)),
    lambda c: c.all_reduce(ones(), timeout_s=5.0, async_op=False, algorithm=None, dtype=None, out=None),
    lambda c: c.all_reduce(ones(4), algorithm="".join(["ri", "ng"])),
    lambda c: c.all_reduce(pickle.loads(pickle.dumps(ones(4)))),  # whose dtype is another object
    lambda c: c.reduce_scatter(ones(2 * c.size, 3)),
    lambda c: c.all_gather(ones(3)),
    lambda c: c.all_to_all(ones(c.size)),
    lambda c: c.broadcast(ones(4), 1),
    lambda c: c.broadcast(ones(4), root=0),
    lambda c: c.reduce(ones(4), 1, "min"),
    lambda c: c.barrier(),
    lambda c: c.barrier(timeout_s=5.0),
]

SLOW: list[Callable[[Communicator], Any]] = [
    lambda c: c.all_reduce(bytearray(8)),
    lambda c: c.all_reduce(ones(4, 2)[:, 1]),
    lambda c: c.all_reduce(np.zeros(17, np.uint8)[1:].view(np.float32)),  # not aligned
    lambda c: c.all_reduce(ones(4), async_op=True).wait(),
    lambda c: c.all_reduce(ones(4), dtype="float32"),
    lambda c: c.all_reduce(ones(4).view(np.recarray)),
    lambda c: c.all_reduce(ones(4), out=bytearray(16)),
    lambda c: c.all_reduce(ones(4), timeout_s=5),
    lambda c: c.broadcast(ones(4), np.int64(1)),
    lambda c: c.all_reduce(ones(*[1] * 9)),
]


def test_a_call_like_an_earlier_one_runs_no_python() -> None:
    def run(comm: Communicator) -> None:
        for call in HOT:
            first = call(comm)
            with python_calls(comm) as seen:
                again = call(comm)
            assert seen == [], inspect.getsource(call)
            assert np.array_equal(first, again)

    threads(2, run)


def test_a_call_out_of_the_ordinary_goes_through_python() -> None:
    def run(comm: Communicator) -> None:
        for call in SLOW:
            first = call(comm)
            with python_calls(comm) as seen:
                again = call(comm)
            assert len(seen) == 1, inspect.getsource(call)
            assert np.array_equal(first, again)

    threads(2, run)


def test_a_dict_of_algorithms_may_change_between_calls() -> None:
    def run(comm: Communicator) -> None:
        chosen = {"local": "direct", "rail": "ring"}
        for rail in ("ring", "direct", "ring"):
            chosen["rail"] = rail
            with python_calls(comm) as seen:
                assert comm.all_reduce(ones(4), algorithm=chosen)[0] == comm.size
            assert seen == ["all_reduce"]

    threads(Topology.grid(2, 2), run)


def test_calls_that_differ_in_one_thing_are_kept_apart() -> None:
    """Many of them, so that the table grows, and twice, so that each is hot once."""

    def run(comm: Communicator) -> None:
        n, rank = comm.size, comm.rank
        for _ in range(2):
            for size in range(60):
                for dtype in (np.int32, np.uint32, np.float32, np.int64):
                    x = np.full(size, rank + 1, dtype)
                    for op, expected in (("sum", n * (n + 1) // 2), ("max", n), ("min", 1)):
                        y = comm.all_reduce(x, op)
                        assert (y.dtype, y.shape) == (x.dtype, x.shape)
                        assert (y == expected).all()
            for shape in ((6,), (2, 3), (3, 2), (1, 6), (6, 1)):
                assert comm.all_reduce(np.full(shape, 1.0)).shape == shape
            for root in range(n):
                assert comm.broadcast(np.array([rank]), root).tolist() == [root]
                reduced = comm.reduce(np.array([rank]), root, "max")
                assert (reduced is None) == (rank != root)

    threads(3, run)


def test_other_bytes_of_the_same_shape_are_not_taken_for_it() -> None:
    def run(comm: Communicator) -> None:
        assert comm.all_reduce(ones(4))[0] == comm.size
        with pytest.raises(pycomm.Unsupported, match="other byte order"):
            comm.all_reduce(ones(4).astype(">f4"))
        with pytest.raises(InvalidArgument, match="mask would be lost"):
            comm.all_reduce(np.ma.masked_array(ones(4), ones(4) > 0))
        with pytest.raises(InvalidArgument, match="out has dtype int32"):
            comm.all_reduce(ones(4), out=np.empty(4, np.int32))
        locked = ones(4)
        locked.flags.writeable = False
        with pytest.raises(InvalidArgument, match="out is read-only"):
            comm.all_reduce(ones(4), out=locked)
        whole = ones(6)
        with pytest.raises(InvalidArgument, match="out overlaps the input"):
            comm.all_reduce(whole[:4], out=whole[1:5])
        table = np.arange(2.0 * comm.size)
        assert comm.all_to_all(table, out=table) is table  # of which the slow path makes a copy first
        comm.barrier()

    threads(2, run)


def test_an_algorithm_installed_later_is_used_at_once() -> None:
    def sum_of_all(program: pycomm.Program, group: pycomm.Group, data: pycomm.Span) -> None:
        order = group.ranks[::-1] if group.index == group.size - 1 else []
        for peer in order[1:]:
            program.recv_reduce(peer, data)
        for peer in order[1:]:
            program.send(peer, data)
        if not order:
            program.send(group.at(-1), data)
            program.recv(group.at(-1), data)

    def run(comm: Communicator) -> None:
        with pytest.raises(InvalidArgument, match="no algorithm 'mine'"):
            comm.all_reduce(ones(4), algorithm="mine")
        assert comm.all_reduce(ones(4))[0] == comm.size
        comm.install("mine", "all_reduce", sum_of_all)
        for hot in (False, True):
            with python_calls(comm) as seen:
                assert comm.all_reduce(ones(4), algorithm="mine")[0] == comm.size
                assert comm.all_reduce(ones(4))[0] == comm.size
            assert seen == ([] if hot else ["all_reduce"] * 2), "installing forgets what was prepared"

    threads(3, run)


def test_each_communicator_has_its_own_calls() -> None:
    def run(comm: Communicator) -> None:
        part = comm.split(comm.rank // 2)
        assert part is not None
        for _ in range(3):
            assert comm.all_reduce(ones(4))[0] == 4
            assert part.all_reduce(ones(4))[0] == 2
        part.close()
        with pytest.raises(InvalidArgument, match="all_reduce: the communicator is closed"):
            part.all_reduce(ones(4))
        assert comm.all_reduce(ones(4))[0] == 4

    threads(4, run)


def test_a_deadline_of_a_hot_call_is_kept() -> None:
    over = threading.Barrier(2)

    def run(comm: Communicator) -> None:
        comm.all_reduce(ones(4))
        if comm.rank == 0:
            with pytest.raises(pycomm.TimedOut, match=r"did not finish within 0\.2 s"):
                comm.all_reduce(ones(4), timeout_s=0.2)
        over.wait(30)

    threads(2, run)


@pytest.mark.parametrize("name", METHODS)
def test_hot_methods_look_like_the_functions_they_stand_for(name: str) -> None:
    comm = pycomm.init()
    method, bound = getattr(Communicator, name), getattr(comm, name)
    function = method.__wrapped__
    assert inspect.signature(method) == inspect.signature(function)
    assert list(inspect.signature(bound).parameters) == list(inspect.signature(function).parameters)[1:]
    for found in (method, bound):
        assert found.__name__ == name
        assert found.__doc__ == function.__doc__
        assert found.__module__ == "pycomm.communicator"
        text = pydoc.plain(pydoc.render_doc(found))
        assert f"{name}(" in text
        assert function.__doc__.split(".")[0].splitlines()[0] in text
    with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'axis'"):
        bound(axis=1)
    with pytest.raises(TypeError, match="positional argument"):
        bound(1, 2, 3, 4, 5)
    comm.close()
