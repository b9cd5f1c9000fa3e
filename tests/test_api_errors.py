"""Bad input: a typed error that says what to do, before anything is sent; the communicator works on."""

import array
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pycomm
from pycomm import Communicator, InvalidArgument, Mismatch, PeerLost, TimedOut, Topology, Unsupported
from pycomm.testing import threads

X = np.ones(6, np.float32)
LOCKED = np.ones(6, np.float32)
LOCKED.flags.writeable = False
BIG = np.zeros(12, np.float32)

WRONG: list[tuple[Callable[[Communicator], object], type[Exception], str]] = [
    (lambda c: c.all_reduce([1, 2]), InvalidArgument, "all_reduce: list has no buffer .* numpy.asarray"),
    (lambda c: c.all_reduce(3.0), InvalidArgument, "float has no buffer"),
    (lambda c: c.all_reduce(None), InvalidArgument, "NoneType has no buffer"),
    (
        lambda c: c.all_reduce(np.ma.masked_array(X, X > 0)),
        InvalidArgument,
        "mask would be lost: pass x.filled",
    ),
    (lambda c: c.all_reduce(X, out=np.ma.masked_array(X, X > 0)), InvalidArgument, "out: a masked array"),
    (lambda c: c.all_reduce("text"), InvalidArgument, "str has no buffer"),
    (lambda c: c.all_reduce(X.astype(np.complex64)), Unsupported, "complex64 is not one of int8, "),
    (lambda c: c.all_reduce(X.astype(bool)), Unsupported, "dtype bool is not one of"),
    (lambda c: c.all_reduce(X.astype(">f4")), Unsupported, "other byte order: convert"),
    (lambda c: c.all_reduce(np.array(["a"])), Unsupported, "is not one of"),
    (
        lambda c: c.all_reduce(X, op="plus"),
        InvalidArgument,
        "op='plus' is no reduction: use one of sum, product",
    ),
    (lambda c: c.all_reduce(X, op=[]), InvalidArgument, "op=\\[\\]"),  # type: ignore[arg-type]
    (lambda c: c.all_reduce(X, algorithm="magic"), InvalidArgument, "no algorithm 'magic'; .* ring"),
    (lambda c: c.all_reduce(X, algorithm={"local": "magic"}), InvalidArgument, "here: direct, halving, ring"),
    (lambda c: c.all_reduce(X, algorithm={"top": "ring"}), InvalidArgument, "all_reduce: "),
    (lambda c: c.all_reduce(X, algorithm={"local": []}), InvalidArgument, "all_reduce"),  # type: ignore[dict-item]
    (lambda c: c.all_reduce(X, timeout_s=0), InvalidArgument, "timeout_s=0 is not a positive number"),
    (lambda c: c.all_reduce(X, timeout_s=float("nan")), InvalidArgument, "timeout_s=nan"),
    (lambda c: c.all_reduce(X, out=LOCKED), InvalidArgument, "out is read-only"),
    (lambda c: c.all_reduce(LOCKED, out=LOCKED), InvalidArgument, "out is read-only"),
    (lambda c: c.all_reduce(X, out=bytes(24)), InvalidArgument, "out is read-only"),
    (lambda c: c.all_reduce(X, out=BIG[::2]), InvalidArgument, "out is strided, .* contiguous array"),
    (lambda c: c.all_reduce(BIG[::2], out=BIG[::2]), InvalidArgument, "strided"),
    (
        lambda c: c.all_reduce(X, out=np.empty(7, np.float32)),
        InvalidArgument,
        r"out has shape \(7,\), .* \(6,\)",
    ),
    (
        lambda c: c.all_reduce(X, out=np.empty(6)),
        InvalidArgument,
        "out has dtype float64, the result float32",
    ),
    (lambda c: c.all_reduce(X, out=bytearray(23)), InvalidArgument, "23 bytes cannot be taken as float32"),
    (lambda c: c.all_reduce(X, out=[0] * 6), InvalidArgument, "out: list has no buffer"),
    (lambda c: c.all_reduce(BIG[:6], out=BIG[1:7]), InvalidArgument, "overlaps the input"),
    (lambda c: c.all_reduce(BIG[6:], out=BIG[5:11]), InvalidArgument, "overlaps the input"),
    (lambda c: c.all_gather(BIG[3:9], out=BIG.reshape(2, 6)), InvalidArgument, "overlaps the input"),
    (
        lambda c: c.all_gather(X, out=np.empty((6, 2), np.float32)),
        InvalidArgument,
        r"\(6, 2\), the result \(2, 6\)",
    ),
    (
        lambda c: c.reduce_scatter(np.ones(5)),
        InvalidArgument,
        r"\(5,\), is not a multiple of the 2 ranks: pad",
    ),
    (
        lambda c: c.reduce_scatter(np.float32(1).reshape(())),
        InvalidArgument,
        "is not a multiple of the 2 ranks",
    ),
    (lambda c: c.all_to_all(np.ones((3, 2))), InvalidArgument, r"\(3, 2\), is not a multiple of the 2 ranks"),
    (lambda c: c.broadcast(X, root=2), InvalidArgument, "root=2 is no rank .* 0 … 1"),
    (lambda c: c.broadcast(X, root=-1), InvalidArgument, "root=-1 is no rank"),
    (lambda c: c.reduce(X, root="0"), InvalidArgument, "root='0' is no rank"),  # type: ignore[arg-type]
    (lambda c: c.reduce(X, root=0.5), InvalidArgument, "root=0.5"),  # type: ignore[arg-type]
    (
        lambda c: c.all_reduce(bytearray(5), dtype="float32"),
        InvalidArgument,
        "5 bytes cannot be taken as float32",
    ),
    (lambda c: c.all_reduce(bytearray(8), dtype="floaty"), InvalidArgument, "'floaty' is no dtype"),
    (
        lambda c: c.all_reduce(memoryview(array.array("i", [1, 2, 3, 4]))[::2], dtype="int8"),
        InvalidArgument,
        "taken",
    ),
    (lambda c: c.split(-1), InvalidArgument, "color=-1 is not a whole number from 0 on"),
    (lambda c: c.split("a"), InvalidArgument, "color='a'"),  # type: ignore[arg-type]
    (lambda c: c.split(0, key="b"), InvalidArgument, "key='b'"),  # type: ignore[arg-type]
    (lambda c: c.split(2**63), InvalidArgument, f"color={2**63} does not fit into 64 bits"),
    (lambda c: c.split(0, key=-(2**70)), InvalidArgument, "key=-.* does not fit into 64 bits"),
    (
        lambda c: c.plan("all_deduce", 1),
        InvalidArgument,
        "'all_deduce' is no collective: use one of all_reduce",
    ),
    (lambda c: c.plan("all_reduce", -1), InvalidArgument, "-1"),
    (lambda c: c.plan("all_reduce", 1, "complex64"), Unsupported, "complex64"),
    (lambda c: c.install("ring", "all_reduce", lambda p, g, d: None), InvalidArgument, "pycomm's own"),
    (
        lambda c: c.install("x", "barrier", lambda p, g, d: None),
        InvalidArgument,
        "'barrier' is no collective",
    ),
    (lambda c: c.install("x", "all_to_all", lambda p, g, d: None), InvalidArgument, "two buffers"),
    (lambda c: c.install("x", "all_reduce", lambda p, g, d: None), pycomm.ProgramError, "rank"),
]


def test_wrong_arguments_are_refused_and_nothing_is_lost() -> None:
    def run(comm: Communicator) -> None:
        for call, kind, says in WRONG:
            with pytest.raises(kind, match=says):
                call(comm)
            assert comm.all_reduce(X)[0] == comm.size

    threads(2, run)


def test_every_error_is_pycomms_and_a_familiar_one() -> None:
    for kind, familiar in [
        (InvalidArgument, ValueError),
        (TimedOut, TimeoutError),
        (PeerLost, ConnectionError),
    ]:
        assert issubclass(kind, pycomm.Error)
        assert issubclass(kind, familiar)
        assert str(kind("rank 3: what to do")) == "rank 3: what to do"


def test_a_closed_communicator_says_so() -> None:
    def run(comm: Communicator) -> None:
        part = comm.split(0)
        assert part is not None
        local = comm.local
        comm.barrier()
        part.close()
        part.close()
        with pytest.raises(InvalidArgument, match="all_reduce: the communicator is closed"):
            part.all_reduce(X)
        assert comm.all_reduce(X)[0] == comm.size
        comm.barrier()
        comm.close()
        comm.close()
        for closed in (comm, local):
            for call in (closed.barrier, lambda c=closed: c.all_reduce(X), lambda c=closed: c.local.size):
                with pytest.raises(InvalidArgument, match="the communicator is closed"):
                    call()

    threads(2, run)


def outcomes(size: int, function: Callable[[Communicator], Any], timeout_s: float = 5) -> list[Any]:
    """What each rank returns or raises; every rank stays until all have finished."""
    over = threading.Barrier(size)

    def run(comm: Communicator) -> Any:
        try:
            return function(comm)
        except pycomm.Error as error:
            return error
        finally:
            over.wait(30)

    return threads(size, run, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("first", "other", "says"),
    [
        (lambda c: c.all_reduce(X), lambda c: c.all_reduce(BIG), ["float32 × 6, sum", "float32 × 12, sum"]),
        (lambda c: c.all_reduce(X), lambda c: c.all_reduce(X.astype(np.int32)), ["float32 × 6", "int32 × 6"]),
        (lambda c: c.all_reduce(X), lambda c: c.all_reduce(X, op="max"), ["sum", "max"]),
        (lambda c: c.all_reduce(X), lambda c: c.broadcast(X), ["all_reduce", "broadcast"]),
        (lambda c: c.broadcast(X, 0), lambda c: c.broadcast(X, 1), ["the ranks disagree"]),
        (lambda c: c.barrier(), lambda c: c.all_reduce(X[:0]), ["barrier", "all_reduce"]),
        (
            lambda c: c.all_reduce(X, algorithm="ring"),
            lambda c: c.all_reduce(X, algorithm="tree"),
            ["all_reduce"],
        ),
    ],
)
def test_ranks_that_disagree_are_all_told_both_requests(
    first: Callable[[Communicator], object], other: Callable[[Communicator], object], says: list[str]
) -> None:
    def run(comm: Communicator) -> None:
        (other if comm.rank == 1 else first)(comm)
        comm.barrier()  # the root of a broadcast may have done its part before anybody could object

    found = outcomes(3, run)
    for error in found:
        assert isinstance(error, Mismatch), error
        for text in ["rank 1", *says]:
            assert text in str(error)


def test_a_rank_that_never_calls_is_named_within_the_deadline() -> None:
    def run(comm: Communicator) -> float:
        started = time.monotonic()
        if comm.rank != 2:
            with pytest.raises(TimedOut, match=r"rank 2 \(node0, thread 2\)") as caught:
                comm.all_reduce(X, timeout_s=0.4)
            assert "all_reduce #" in str(caught.value)
        return time.monotonic() - started

    found = outcomes(3, run)
    assert max(found) < 5


def test_a_wait_that_is_too_short_is_not_the_end() -> None:
    late = threading.Event()

    def run(comm: Communicator) -> None:
        if comm.rank == 1:
            late.wait(10)
        work = comm.all_reduce(X, async_op=True)
        if comm.rank == 0:
            with pytest.raises(TimedOut, match=r"all_reduce: not done after a wait of 0.05 s; it goes on"):
                work.wait(0.05)
            assert not work.done()
            late.set()
        assert work.wait(10).tolist() == [2] * 6
        assert work.done()

    threads(2, run)


def test_two_threads_on_one_communicator_are_refused() -> None:
    over = threading.Event()

    def run(comm: Communicator) -> None:
        comm.all_reduce(X)
        if comm.rank == 1:
            over.wait(10)
            comm.all_reduce(X)
            return
        refused: list[str] = []
        before = comm.counters().peers[1].sent_messages

        def intrude() -> None:
            while comm.counters().peers[1].sent_messages == before:  # then the other thread is inside
                time.sleep(0.001)
            for x in (X, X.tobytes()):  # a hot call, and one that goes through Python
                try:
                    comm.all_reduce(x)
                except InvalidArgument as error:
                    refused.append(str(error))
            over.set()

        other = threading.Thread(target=intrude)
        other.start()
        assert comm.all_reduce(X)[0] == 2
        other.join()
        assert len(refused) == 2
        for error in refused:
            assert error.startswith("all_reduce: another thread is inside a call on this communicator")

    threads(2, run)


def test_a_forked_child_is_refused() -> None:
    comm = pycomm.init()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            comm.all_reduce(X)
            said = "nothing"
        except InvalidArgument as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert f"this process ({child}) was forked from the one that called pycomm.init ({os.getpid()})" in said
    assert comm.all_reduce(X)[0] == 1
    comm.close()


def test_split_orders_by_key_and_leaves_out() -> None:
    def run(comm: Communicator) -> None:
        turned = comm.split(0, key=-comm.rank)
        assert turned is not None
        assert turned.ranks == tuple(reversed(range(comm.size)))
        assert turned.all_gather(np.array(comm.rank)).tolist() == list(reversed(range(comm.size)))
        odd = comm.split(comm.rank if comm.rank % 2 else None)
        assert (odd is None) == (comm.rank % 2 == 0)
        if odd is not None:
            assert odd.size == 1
        pair = comm.split(comm.rank // 2)
        assert pair is not None
        sums = [
            pair.all_reduce(np.array(comm.rank), async_op=True),
            comm.all_reduce(np.array(1), async_op=True),
        ]
        assert [int(work.wait()) for work in reversed(sums)] == [comm.size, 4 * (comm.rank // 2) + 1]
        nested = pair.split(0)
        assert nested is not None
        assert nested.all_gather(np.array(comm.rank)).tolist() == list(nested.ranks)

    threads(4, run)


def test_an_own_algorithm_with_a_root_is_proved_for_each() -> None:
    def chain(program: pycomm.Program, group: pycomm.Group, data: pycomm.Span) -> None:
        if group.index > 0:
            program.recv(group.peer(-1), data)
        if group.index + 1 < group.size:
            program.send(group.peer(+1), data)

    def run(comm: Communicator) -> None:
        comm.install("chain", "broadcast", chain)
        for root in range(comm.size):
            x = np.full(5, comm.rank, np.int64)
            assert comm.broadcast(x, root, algorithm="chain").tolist() == [root] * 5

    threads(Topology.from_sizes([3, 2]), run)


def test_an_own_algorithm_that_differs_between_ranks_is_refused() -> None:
    def run(comm: Communicator) -> None:
        def build(program: pycomm.Program, group: pycomm.Group, data: pycomm.Span) -> None:
            if group.index:
                program.send(group.at(0), data)
                program.recv(group.at(0), data)
            else:
                for peer in group.ranks[1:] if comm.rank else group.ranks[:0:-1]:
                    program.recv_reduce(peer, data)
                for peer in group.ranks[1:]:
                    program.send(peer, data)

        comm.install("mine", "all_reduce", build)

    with pytest.raises(Mismatch, match="install: rank 1 has built another 'mine' than rank 0"):
        threads(3, run)


def test_local_and_rail_parts() -> None:
    def run(comm: Communicator) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        local, rail, both = comm.local, comm.rail, comm.local.rail
        assert local.local is local
        assert rail.rail is rail
        assert both is rail.local
        for part in (local, rail, both, comm):
            assert part.all_gather(np.array(comm.rank)).tolist() == list(part.ranks)
        return local.ranks, rail.ranks, both.ranks

    topology = Topology.from_rails([[0, 0, 1], [1, 0, 2]])
    assert threads(topology, run) == [
        ((0, 1, 2), (0, 1, 4), (0, 1)),
        ((0, 1, 2), (0, 1, 4), (0, 1)),
        ((0, 1, 2), (2, 3), (2,)),
        ((3, 4, 5), (2, 3), (3,)),
        ((3, 4, 5), (0, 1, 4), (4,)),
        ((3, 4, 5), (5,), (5,)),
    ]
