"""Measuring one collective over a list of sizes, as one rank sees it. All ranks do the same together."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pycomm.bench.call import plan_of, prepare
from pycomm.bench.record import Record, Setting, make_record
from pycomm.bench.workload import Buffers, Workload, element_count

if TYPE_CHECKING:
    from pycomm.communicator import Communicator


@dataclass(frozen=True)
class Effort:
    """How much is done for one figure."""

    iterations: int = 20
    warm_up: int = 5
    checks: int = 1
    blocking: bool = True


@dataclass(frozen=True)
class Case:
    """What is measured at every size."""

    collective: str
    dtype: np.dtype[Any]
    op: str = "sum"
    root: int = 0
    algorithm: str | None = None


@dataclass(frozen=True)
class Row:
    """One size, both ways; a way that the collective does not have is None."""

    out_of_place: Record | None
    in_place: Record | None


def workloads(case: Case, sizes: Sequence[int], rank: int, ranks: int) -> list[Workload]:
    """One workload for each different count that the sizes come to."""
    counts = dict.fromkeys(element_count(case.collective, size, case.dtype, ranks) for size in sizes)
    return [
        Workload(case.collective, count, case.dtype, rank, ranks, op=case.op, root=case.root)
        for count in counts
    ]


def measure_row(comm: Communicator, case: Case, work: Workload, effort: Effort) -> Row:
    """One row. Collective, as all of this file: every rank of the communicator must take part."""
    out_of_place = measure(comm, case, work, effort, in_place=False)
    if work.collective in ("barrier", "all_to_all"):
        return Row(out_of_place, None)
    return Row(out_of_place, measure(comm, case, work, effort, in_place=True))


def measure(comm: Communicator, case: Case, work: Workload, effort: Effort, *, in_place: bool) -> Record:
    """One figure: warm-up, checked iterations, timed iterations; the slowest rank's times count."""
    buffers = Buffers(work, in_place=in_place)
    call = prepare(comm, work, buffers, case.algorithm)
    wrong = 0
    for _ in range(effort.warm_up):
        buffers.refill()
        call()
    for _ in range(effort.checks):
        buffers.poison()
        buffers.refill()
        comm.barrier()
        call()
        wrong += buffers.wrong()
    gc.collect()
    gc.disable()
    try:
        if effort.blocking:
            own = time_each(comm, call, buffers, effort.iterations)
        else:
            own = time_all(
                comm, prepare(comm, work, buffers, case.algorithm, async_op=True), effort.iterations
            )
    finally:
        gc.enable()
    slowest = comm.all_reduce(own, op="max")
    total_wrong = int(comm.all_reduce(np.array([wrong]))[0])
    algorithm = plan_of(comm, work, case.algorithm).algorithm
    setting = Setting("pycomm", algorithm, len(comm.topology.nodes), in_place)
    return make_record(work, setting, slowest, total_wrong if effort.checks and work.count else None)


def time_each(
    comm: Communicator, call: Callable[[], object], buffers: Buffers, iterations: int
) -> NDArray[np.float64]:
    """Seconds of every call. The source is written anew before each, then all ranks wait for each other."""
    clock, refill, barrier = time.perf_counter, buffers.refill, comm.barrier
    times = np.empty(iterations)
    for iteration in range(iterations):
        refill()
        barrier()
        begin = clock()
        call()
        times[iteration] = clock() - begin
    return times


def time_all(comm: Communicator, begin_call: Callable[[], Any], iterations: int) -> NDArray[np.float64]:
    """The mean time, in seconds, of calls that are all issued before the first is waited for."""
    comm.barrier()
    begin = time.perf_counter()
    pending = [begin_call() for _ in range(iterations)]
    for work in pending:
        work.wait()
    return np.array([(time.perf_counter() - begin) / iterations])
