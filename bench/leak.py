"""Many small all-reduces, then what a rank holds that it did not before."""

import argparse
import gc
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

import pycomm
from pycomm.bench.launch import run_ranks

MEMORY_SLACK_KIB = 1024  # what the allocator may keep
WARM_UP = 2000


@dataclass(frozen=True)
class Holdings:
    """What a process holds."""

    memory_kib: int
    descriptors: int
    threads: int
    segments: int

    @classmethod
    def now(cls) -> "Holdings":
        """Counted in /proc/self."""
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        maps = Path("/proc/self/maps").read_text().splitlines()
        return cls(
            memory_kib=int(status["VmRSS"].split()[0]),
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=int(status["Threads"]),
            segments=sum("/memfd:" in line for line in maps),
        )

    def exceeds(self, before: "Holdings") -> bool:
        """Whether this is more than before, but for what an allocator may keep."""
        return self.memory_kib > before.memory_kib + MEMORY_SLACK_KIB or self.counts_exceed(before)

    def counts_exceed(self, before: "Holdings") -> bool:
        """Whether there are more descriptors, threads or segments than before."""
        return any(now > then for now, then in zip(astuple(self)[1:], astuple(before)[1:], strict=True))

    def __str__(self) -> str:
        return (
            f"{self.memory_kib} KiB, {self.descriptors} descriptors, "
            f"{self.threads} threads, {self.segments} mapped segments"
        )


@dataclass(frozen=True)
class Findings:
    """Of one rank's calls."""

    rank: int
    before: Holdings
    after: Holdings
    call_us: float
    right: bool


def many_calls(calls: int) -> Findings:
    """Joins, calls, leaves. What the first calls make (plans, connections, touched pages) does not count."""
    x, out = np.ones(2, np.float32), np.empty(2, np.float32)
    with pycomm.init() as comm:
        for _ in range(WARM_UP):
            comm.all_reduce(x, out=out)
        before, begin = Holdings.now(), time.perf_counter()
        for _ in range(calls):
            comm.all_reduce(x, out=out)
        seconds, after = time.perf_counter() - begin, Holdings.now()
        return Findings(comm.rank, before, after, seconds / calls * 1e6, bool((out == comm.size).all()))


def own_part(calls: int) -> int:
    """One rank: returns 1 if it holds more after the calls than before, or than before it joined."""
    alone = Holdings.now()
    found = many_calls(calls)
    gc.collect()
    left = Holdings.now()
    leaks = found.after.exceeds(found.before) or left.counts_exceed(alone)
    if found.rank == 0 or leaks or not found.right:
        verdict = "right" if found.right else "WRONG"
        print(f"{calls} all-reduces of 8 bytes, {found.call_us:.1f} us each, results {verdict}")
        stages = {"alone": alone, "before": found.before, "after": found.after, "left": left}
        for name, held in stages.items():
            print(f"{name:>7}: {held}")
        print("LEAK" if leaks else "nothing leaked")
    return int(leaks or not found.right)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench leak", description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--nodes", help="virtual nodes, so that TCP is tried too")
    options = parser.parse_args(arguments)
    if "RANK" in os.environ:
        return own_part(options.calls)
    shared = set(os.listdir("/dev/shm"))
    program = ["bench", "leak", "--calls", str(options.calls)]
    status = run_ranks(options.ranks, options.nodes, program, timeout_s=600)
    files = set(os.listdir("/dev/shm")) - shared
    if files:
        print(f"LEAK: left in /dev/shm: {', '.join(sorted(files))}", file=sys.stderr)
    return status or int(bool(files))
