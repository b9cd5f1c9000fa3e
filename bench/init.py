"""How long pycomm.init() takes where all ranks of one machine call it at once, and what a rank then holds.

The slowest rank's time counts; endpoints, open files and memory are those of the rank that has most, after a
barrier and an all-reduce. Memory is the proportional set size: shared pages count for each by its share.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

import pycomm
from bench.barrier import Barrier
from pycomm.bench.launch import run_ranks
from pycomm.testing import threads

COUNT = 1000  # elements of the all-reduce


@dataclass(frozen=True)
class Joined:
    """One measurement. Times are in seconds, by round; `before` is what the process had without a job."""

    library: str
    kind: str  # processes or threads
    ranks: int
    nodes: int
    init_s: list[float]
    with_barrier_s: list[float]
    all_reduce_s: list[float]
    endpoints: int
    open_files: int
    open_files_before: int
    memory_bytes: int
    memory_bytes_before: int

    def text(self) -> str:
        """For people."""
        times = ", ".join(
            f"{name} {median(each) * 1e3:.0f} ms"
            for name, each in (
                ("init", self.init_s),
                ("with a first barrier", self.with_barrier_s),
                ("all-reduce", self.all_reduce_s),
            )
        )
        more_files = self.open_files - self.open_files_before
        more_memory = (self.memory_bytes - self.memory_bytes_before) / 1e6
        whose = "the process" if self.kind == "threads" else "a rank"
        return (
            f"{self.ranks} {self.kind}: {times} (medians of {len(self.init_s)}); {self.endpoints} endpoints "
            f"a rank; {whose} has {more_files} more open files, {more_memory:.1f} MB more memory"
        )


def open_files() -> int:
    """Of this process."""
    return len(os.listdir("/proc/self/fd")) - 1


def memory_bytes() -> int:
    """Proportional set size of this process."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/smaps_rollup has no Pss")


def endpoints(comm: pycomm.Communicator) -> int:
    """Peers that this rank has used."""
    return len(comm.counters().peers)


def own_part(rounds: int, folder: Path) -> int:
    """One rank: joins and leaves `rounds` times; rank 0 writes what the worst rank found."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    barrier = Barrier(folder / "barrier", rank, ranks, yielding=True)
    before = [open_files(), memory_bytes()]
    times: list[list[float]] = []
    held, nodes = np.zeros(0), 0
    for _ in range(rounds):
        barrier.wait()
        begin = time.perf_counter()
        with pycomm.init() as comm:
            nodes = len(comm.topology.nodes)
            marks = [time.perf_counter() - begin]
            comm.barrier()
            marks.append(time.perf_counter() - begin)
            check(comm)
            marks.append(time.perf_counter() - begin - marks[1])
            found = np.array([endpoints(comm), open_files(), before[0], memory_bytes(), before[1]])
            times.append(comm.all_reduce(np.array(marks), op="max").tolist())
            held = comm.all_reduce(found, op="max")
    if rank == 0:
        init_s, with_barrier_s, all_reduce_s = (list(column) for column in zip(*times, strict=True))
        joined = Joined(
            "pycomm", "processes", ranks, nodes, init_s, with_barrier_s, all_reduce_s, *held.tolist()
        )
        (folder / "joined").write_text(json.dumps(asdict(joined)))
    return 0


def check(comm: pycomm.Communicator) -> None:
    """An all-reduce with the right result."""
    total = comm.all_reduce(np.full(COUNT, comm.rank, np.float32))
    if not (total == comm.size * (comm.size - 1) // 2).all():
        raise AssertionError(f"rank {comm.rank} of {comm.size} has a wrong sum")


def as_processes(ranks: int, nodes: str | None, rounds: int) -> Joined | None:
    """Ranks as processes of this machine; None if the job failed."""
    with tempfile.TemporaryDirectory(prefix="pycomm-bench-") as folder:
        program = ["bench", "init", "--rounds", str(rounds), "--folder", folder]
        if run_ranks(ranks, nodes, program, timeout_s=300):
            return None
        return Joined(**json.loads((Path(folder) / "joined").read_text()))


def as_threads(ranks: int, rounds: int) -> Joined:
    """Ranks as threads of this process; `init` is the time until all have a communicator."""
    before = [open_files(), memory_bytes()]

    def one(comm: pycomm.Communicator) -> list[float]:
        marks = [time.perf_counter()]
        comm.barrier()
        marks.append(time.perf_counter())
        check(comm)
        marks.append(time.perf_counter())
        comm.barrier()
        held = [open_files(), memory_bytes()] if comm.rank == 0 else [0, 0]  # to look at it opens files, too
        comm.barrier()
        return [*marks, endpoints(comm), *held]

    times: list[list[float]] = []
    held = np.zeros(3)
    for _ in range(rounds):
        begin = time.perf_counter()
        last = np.max(threads(ranks, one, timeout_s=300), axis=0)
        times.append([last[0] - begin, last[1] - begin, last[2] - last[1]])
        held = np.maximum(held, last[3:])
    init_s, with_barrier_s, all_reduce_s = (list(column) for column in zip(*times, strict=True))
    most, files, memory = (int(each) for each in held)
    return Joined(
        library="pycomm",
        kind="threads",
        ranks=ranks,
        nodes=1,
        init_s=init_s,
        with_barrier_s=with_barrier_s,
        all_reduce_s=all_reduce_s,
        endpoints=most,
        open_files=files,
        open_files_before=before[0],
        memory_bytes=memory,
        memory_bytes_before=before[1],
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench init", description=__doc__)
    parser.add_argument("--ranks", type=_numbers, default=[8], metavar="N,…", help="processes (default 8)")
    parser.add_argument("--threads", type=_numbers, default=[], metavar="N,…", help="also as threads")
    parser.add_argument("--nodes", help="virtual nodes of the processes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="JSON lines to write")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # where the ranks meet
    options = parser.parse_args(arguments)
    if "RANK" in os.environ:
        return own_part(options.rounds, options.folder)
    found: list[Joined | None] = []
    for ranks in options.ranks:
        joined = as_processes(ranks, options.nodes, options.rounds)
        print(joined.text() if joined else f"{ranks} processes: failed", flush=True)
        found.append(joined)
    for ranks in options.threads:
        joined = as_threads(ranks, options.rounds)
        print(joined.text(), flush=True)
        found.append(joined)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text("".join(json.dumps(asdict(each)) + "\n" for each in found if each))
    return int(None in found)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]
