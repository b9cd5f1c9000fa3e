"""Every collective against NumPy: algorithms, dtypes, reductions, shapes of jobs, counts, in place or not.

Small whole numbers, so that every result is exact and compares with ==, whatever the order of reduction.
"""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pycomm
from pycomm import Communicator, InvalidArgument, Topology
from pycomm.collectives import REDUCTIONS
from pycomm.testing import threads

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = [
    *(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    np.dtype(np.float16),
    np.dtype(ml_dtypes.bfloat16),
    np.dtype(np.float32),
    np.dtype(np.float64),
]
ALGORITHMS = ["ring", "halving", "tree", "direct", "hierarchical", None]
SHAPES = [[1], [2], [3], [4], [7], [8], [1, 1], [2, 2], [4, 4], [1, 1, 1, 1], [2, 3], [1, 3, 2], [5, 1]]
COUNTS = [0, 1, 7, 64, 1000]


def values(rank: int, count: int, dtype: np.dtype[Any], op: str) -> Array:
    """What a rank brings: such that sums and products of eight ranks are exact in every dtype."""
    index = np.arange(count) * 31 + rank * 17
    return (index % 2 + 1 if op == "product" else index % 13).astype(dtype)


def reduced(contributions: list[Array], op: str) -> Array:
    """The definition: in NumPy, in a wide type, rounded once."""
    dtype = contributions[0].dtype
    exact = dtype.kind in "iu"
    wide = np.stack([x.astype(np.int64 if exact else np.float64) for x in contributions])
    if op == "avg":
        total = wide.sum(axis=0)
        if exact:
            return np.asarray(total // len(contributions), dtype)
        partial = np.float64 if dtype == np.float64 else np.float32
        average: Array = (total.astype(partial) / partial(len(contributions))).astype(dtype)
        return average
    function = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    result: Array = function.reduce(wide, axis=0).astype(dtype)
    return result


def same(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert (found == expected).all()


class Case:
    """One call's data on all ranks, and what must come out on one of them."""

    def __init__(self, comm: Communicator, count: int, dtype: np.dtype[Any], op: str) -> None:
        self.comm, self.op = comm, op
        n = comm.size
        self.one = [values(rank, count, dtype, op) for rank in range(n)]
        self.each = [values(rank, count * n, dtype, op) for rank in range(n)]
        self.count = count

    def part(self, rank: int) -> slice:
        return slice(rank * self.count, (rank + 1) * self.count)

    def calls(self, root: int) -> Iterator[tuple[str, Array, Array | None, dict[str, Any]]]:
        """Name, this rank's input, its result, and arguments of each collective."""
        rank = self.comm.rank
        one, each = self.one[rank], self.each[rank]
        sum_one = reduced(self.one, self.op)
        op = {"op": self.op}
        yield "all_reduce", one, sum_one, op
        yield "reduce", one, sum_one if rank == root else None, {"root": root, **op}
        yield "reduce_scatter", each, reduced(self.each, self.op)[self.part(rank)], op
        if self.op == "sum":
            yield "broadcast", one, self.one[root], {"root": root}
            yield "all_gather", one, np.stack(self.one), {}
            yield "all_to_all", each, np.concatenate([x[self.part(rank)] for x in self.each]), {}


def check(comm: Communicator, name: str, x: Array, expected: Array | None, arguments: dict[str, Any]) -> None:
    """Out of place, in place and asynchronously; the input survives the first and the last."""
    method = getattr(comm, name)
    before = x.copy()
    found = method(x, **arguments)
    work = method(x, async_op=True, **arguments)
    later = work.wait()
    assert work.done()
    assert (x == before).all()
    if expected is None:
        assert found is None
        assert later is None
        method(x, out=x, **arguments)
        method(x, out=np.empty_like(x), **arguments)
        assert (x == before).all(), "reduce must leave the other ranks' input alone"
        return
    same(found, expected)
    same(later, expected)
    if x.shape == expected.shape:
        scratch = x.copy()
        assert method(scratch, out=scratch, **arguments) is scratch
        same(scratch, expected)
    target = np.empty_like(expected)
    assert method(x, out=target, **arguments) is target
    same(target, expected)


def shape_name(shape: list[int]) -> str:
    return "+".join(map(str, shape))


@pytest.mark.parametrize("shape", SHAPES, ids=shape_name)
def test_every_dtype_and_reduction_equals_numpy(shape: list[int]) -> None:
    def run(comm: Communicator) -> None:
        for turn, dtype in enumerate(DTYPES):
            for op in REDUCTIONS:
                case = Case(comm, COUNTS[turn % len(COUNTS)], dtype, op)
                for name, x, expected, arguments in case.calls(root=turn % comm.size):
                    check(comm, name, x, expected, arguments)

    threads(Topology.from_sizes(shape), run, timeout_s=60)


def possible(comm: Communicator, name: str, count: int, algorithm: str | None) -> bool:
    try:
        comm.plan(name, count, algorithm=algorithm)
    except InvalidArgument:
        return False
    return True


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_name)
def test_every_algorithm_equals_numpy(shape: list[int], algorithm: str | None) -> None:
    def run(comm: Communicator) -> set[str]:
        done = set()
        for count in COUNTS:
            case = Case(comm, count, np.dtype(np.float32), "sum")
            for name, x, expected, arguments in case.calls(root=comm.size - 1):
                if possible(comm, name, count, algorithm):
                    check(comm, name, x, expected, {**arguments, "algorithm": algorithm})
                    done.add(name)
        return done

    done = threads(Topology.from_sizes(shape), run, timeout_s=60)
    assert all(names == done[0] for names in done)
    if algorithm in (None, "direct"):
        assert len(done[0]) == 6
    if algorithm == "ring":
        assert "all_reduce" in done[0]


@pytest.mark.parametrize("shape", [[4], [2, 2]], ids=shape_name)
def test_more_than_many_slices(shape: list[int]) -> None:
    def run(comm: Communicator) -> None:
        case = Case(comm, 300_001, np.dtype(np.float32), "sum")
        for name, x, expected, arguments in case.calls(root=1):
            check(comm, name, x, expected, arguments)

    threads(Topology.from_sizes(shape), run, timeout_s=60)


def test_sixteen_bit_sums_are_rounded_once() -> None:
    """256 and seven ones: 264 everywhere, whatever the order (256 or 260 if each sum were rounded)."""

    def run(comm: Communicator) -> None:
        for algorithm in ["ring", "halving", "tree", "direct"]:
            x = np.full(5, 256 if comm.rank == 3 else 1, ml_dtypes.bfloat16)
            assert comm.all_reduce(x, algorithm=algorithm).tolist() == [264] * 5

    threads(8, run)


def test_shapes_of_results() -> None:
    def run(comm: Communicator) -> None:
        n = comm.size
        x = np.arange(n * 2 * 3 * 5, dtype=np.int32).reshape(n * 2, 3, 5) + comm.rank
        total = np.stack([x - comm.rank + r for r in range(n)]).sum(axis=0, dtype=np.int32)
        same(comm.all_reduce(x), total)
        same(comm.reduce_scatter(x), total[2 * comm.rank : 2 * comm.rank + 2])
        same(comm.all_gather(x), np.stack([x - comm.rank + r for r in range(n)]))
        mine = [(x - comm.rank + r)[2 * comm.rank : 2 * comm.rank + 2] for r in range(n)]
        same(comm.all_to_all(x), np.concatenate(mine))
        same(comm.all_reduce(np.float32(2).reshape(())), np.float32(2 * n).reshape(()))
        same(comm.all_gather(np.array(comm.rank)), np.arange(n))
        same(comm.all_reduce(np.empty((1, 0, 2), np.int8)), np.empty((1, 0, 2), np.int8))

    threads(Topology.from_sizes([2, 1]), run)


def test_strided_inputs_are_right() -> None:
    def run(comm: Communicator) -> None:
        whole = np.arange(60, dtype=np.float64).reshape(6, 10) * (comm.rank + 1)
        factor = sum(range(1, comm.size + 1))
        base = whole / (comm.rank + 1)
        same(comm.all_reduce(whole[:, 3]), base[:, 3] * factor)
        same(comm.all_reduce(whole.T), base.T * factor)
        same(comm.all_reduce(whole[::-2]), base[::-2] * factor)
        same(comm.all_reduce(whole[:, 3], async_op=True).wait(), base[:, 3] * factor)
        same(comm.broadcast(whole[:, ::3], 1), base[:, ::3] * 2)

    threads(3, run)


def test_blocks_of_one_buffer_are_in_place() -> None:
    def run(comm: Communicator) -> None:
        n = comm.size
        row = np.full((n, 100), -1.0)
        row[comm.rank] = comm.rank
        assert comm.all_gather(row[comm.rank], out=row) is row
        same(row, np.repeat(np.arange(n, dtype=np.float64), 100).reshape(n, 100))
        table = np.repeat(np.arange(n, dtype=np.float64), 100).reshape(n, 100) + comm.rank
        comm.reduce_scatter(table.reshape(-1), out=table[comm.rank])
        same(table[comm.rank], np.full(100, float(n * comm.rank + sum(range(n)))))

    for shape in ([4], [2, 2], [2, 3]):
        threads(Topology.from_sizes(shape), run)


def test_raw_buffers() -> None:
    import array

    def run(comm: Communicator) -> None:
        n = comm.size
        raw = bytearray(np.arange(4, dtype=np.float32).tobytes())
        same(comm.all_reduce(raw, dtype="float32"), np.arange(4, dtype=np.float32) * n)
        same(comm.all_reduce(raw), np.frombuffer(raw, np.uint8) * np.uint8(n))
        comm.all_reduce(raw, out=raw, dtype="float32")
        assert np.frombuffer(raw, np.float32).tolist() == [0, n, 2 * n, 3 * n]
        target = bytearray(16)
        comm.all_reduce(np.ones(4, np.float32), out=target)
        assert np.frombuffer(target, np.float32).tolist() == [n] * 4
        numbers = array.array("d", [comm.rank, 1.0])
        same(comm.all_reduce(numbers), np.array([sum(range(n)), n], np.float64))
        same(comm.all_reduce(memoryview(numbers)[1:]), np.array([n], np.float64))
        same(comm.all_gather(b"abc").reshape(-1), np.frombuffer(b"abc" * n, np.uint8))
        halves = np.full(3, 1, ml_dtypes.bfloat16).tobytes()
        assert comm.all_reduce(halves, dtype="bfloat16").tolist() == [n] * 3

    threads(2, run)


def test_a_dict_of_algorithms_for_the_levels() -> None:
    def run(comm: Communicator) -> None:
        chosen = {"local": "direct", "rail": "ring"}
        plan = comm.plan("all_reduce", 1000, algorithm=chosen)
        assert plan.algorithm == "hierarchical(direct, ring)"
        same(comm.all_reduce(np.ones(1000), algorithm=chosen), np.full(1000, 4.0))
        same(comm.all_reduce(np.ones(1000), algorithm=chosen), np.full(1000, 4.0))

    threads(Topology.grid(2, 2), run)


def test_many_operations_under_way_finish_in_order() -> None:
    def run(comm: Communicator) -> None:
        works = [comm.all_reduce(np.full(k, k, np.int64), async_op=True) for k in range(50)]
        blocking = comm.all_reduce(np.ones(3))
        same(blocking, np.full(3, float(comm.size)))
        assert all(work.done() for work in works), "a blocking call comes after what was started before it"
        for k, work in enumerate(works):
            same(work.wait(), np.full(k, k * comm.size, np.int64))

    threads(Topology.grid(2, 2), run)


def test_the_result_of_any_order_of_calls_has_the_same_bits() -> None:
    rng = np.random.default_rng(3)
    data = rng.standard_normal((4, 10_000)).astype(np.float32)

    def run(comm: Communicator) -> bytes:
        results: set[bytes] = {comm.all_reduce(data[comm.rank]).tobytes() for _ in range(5)}
        assert len(results) == 1
        return results.pop()

    for shape in ([4], [2, 2], [1, 3]):
        assert len(set(threads(Topology.from_sizes(shape), run))) == 1


def test_byte_counters_agree_with_the_plan() -> None:
    def run(comm: Communicator) -> tuple[float, float, float]:
        count = 1 << 18
        plan = comm.plan("all_reduce", count)
        comm.all_reduce(np.ones(count, np.float32))
        moved = comm.counters()
        assert moved.cross_rail_bytes == 0
        assert plan.declared == ()
        return moved.local_bytes, moved.rail_bytes, moved.cross_rail_bytes

    found = np.array(threads(Topology.grid(2, 2), run)).sum(axis=0)
    proof = threads(Topology.grid(2, 2), lambda comm: comm.plan("all_reduce", 1 << 18).proof)[0]
    assert proof is not None
    block = 4 * (1 << 18)
    assert found.tolist() == [proof.local * block, proof.rail * block, 0]


def test_a_color_is_what_its_index_says() -> None:
    class Seven:
        def __index__(self) -> int:
            return 7

    def run(comm: Communicator) -> int:
        part = comm.split(Seven() if comm.rank else 7)
        assert part is not None
        return part.size

    assert threads(3, run) == [3, 3, 3]


def test_versions_of_init_without_a_launcher() -> None:
    with pycomm.init() as comm:
        assert (comm.rank, comm.size) == (0, 1)
        x = np.arange(5.0)
        for name in ("all_reduce", "reduce_scatter", "all_to_all", "broadcast", "reduce"):
            same(getattr(comm, name)(x), x)
        same(comm.all_gather(x), x[None])
        comm.barrier()
        assert comm.split(0) is not None
        assert comm.local.size == comm.rail.size == 1
