"""The interleaved comparison: real libraries in real processes, asked in turn."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.barrier import Barrier
from bench.compare import Comparison, arrangements, slowest, table_header, table_row
from bench.peers import Job, peer_class
from bench.workers import WorkerFailed, Workers
from pycomm.bench.measure import Case, workloads
from pycomm.bench.workload import COLLECTIVES, Workload, parse_dtype

pytestmark = pytest.mark.timeout(60)


@contextlib.contextmanager
def workers(library: str, ranks: int) -> Iterator[Workers]:
    reason = peer_class(library).missing(Job(library, ranks, 1, Path()))
    if reason:
        pytest.skip(f"{library}: {reason}")
    with Workers(library, ranks) as team:
        yield team


def a_workload(collective: str, dtype: str = "float32", ranks: int = 2) -> Workload:
    (work,) = workloads(Case(collective, parse_dtype(dtype)), [1000], 0, ranks)
    return work


def children() -> set[int]:
    """Every process below this one."""
    pids = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pids.add((int(status.parent.name), int(status.read_text().rpartition(")")[2].split()[1])))
    below, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, parent in pids if parent in below} - below
        below, grown = below | more, bool(more)
    return below - {os.getpid()}


@pytest.mark.parametrize("library", ["pycomm", "gloo", "mpich"])
def test_every_collective_of_a_library_gives_the_predicted_result(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.compare.SECONDS_A_ROUND", 0.005)
    with workers(library, 2) as team:
        for name in COLLECTIVES:
            for in_place in arrangements(name):
                (record,) = Comparison([team], 1).measure(a_workload(name), in_place)
                assert (record.library, record.collective, record.wrong) == (library, name, 0)
                assert 0 < record.median_us <= record.p99_us
                assert record.in_place == in_place


def test_a_dtype_that_a_library_lacks_leaves_it_out_of_that_row() -> None:
    with workers("mpich", 2) as team:
        for dtype in ("int32", "float16", "bfloat16"):
            right = Comparison([team], 1).measure(a_workload("all_reduce", dtype), True)
            assert [record.wrong for record in right] == [0]
        request = {"collective": "all_reduce", "count": 8, "dtype": "int32", "op": "avg", "in_place": True}
        answers = team.ask(request | {"check": True, "warm_up": 0, "iterations": 1})
        assert answers == 2 * [{"unsupported": "MPI does not reduce with avg"}]


@pytest.mark.parametrize("library", ["pycomm", "mpich"])
def test_idle_workers_do_not_use_the_machine(library: str) -> None:
    with workers(library, 2) as team:
        Comparison([team], 1).measure(a_workload("all_reduce"), True)

        def used() -> float:
            ticks = [
                Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in children()
            ]
            return sum(int(part) for both in ticks for part in both) / os.sysconf("SC_CLK_TCK")

        before = used()
        time.sleep(0.5)
        assert used() - before < 0.1


def test_a_dead_worker_is_an_error_and_nobody_is_left_behind() -> None:
    before = children()
    with pytest.raises(WorkerFailed, match="no_such_collective"), workers("mpich", 2) as team:
        team.ask({"collective": "no_such_collective"})
    assert children() <= before


def test_times_are_those_of_the_slowest_rank() -> None:
    assert slowest([{"times_ns": [1000, 5000]}, {"times_ns": [3000, 2000]}]) == [3e-6, 5e-6]


def test_the_table_gives_ratios_only_where_both_were_measured() -> None:
    libraries = ["pycomm", "gloo", "impi"]
    with workers("mpich", 1) as team:
        (record,) = Comparison([team], 1).measure(a_workload("barrier", ranks=1), False)
    ours = record.__class__(**vars(record) | {"library": "pycomm", "median_us": 2.0})
    gloo = record.__class__(**vars(record) | {"library": "gloo", "median_us": 50.0})
    line = table_row(libraries, 8, False, [ours, gloo]).split()
    assert line == ["8", "out", "of", "place", "2.00", "50.00", "-", "25.00", "-"]
    assert len(table_header(libraries)) == len(table_row(libraries, 8, False, [ours, gloo]))


def test_the_barrier_holds_everybody_back(tmp_path: Path) -> None:
    ranks, turns = 3, 50
    arrived = np.memmap(tmp_path / "arrived", dtype=np.int64, mode="w+", shape=ranks)
    pids = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            barrier = Barrier(tmp_path / "barrier", rank, ranks, yielding=True)
            early = 0
            for turn in range(1, turns):
                arrived[rank] = turn
                barrier.wait()
                early += int((arrived < turn).any())
                barrier.wait()
            os._exit(min(early, 100))
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == ranks * [0]
