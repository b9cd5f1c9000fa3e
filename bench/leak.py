"""Many small all-reduces, then what a rank holds that it did not before."""

import argparse
import os
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

import pycomm
from pycomm.cli import run as launcher

MEMORY_SLACK_KIB = 1024  # what the allocator may keep


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
        return (
            self.memory_kib > before.memory_kib + MEMORY_SLACK_KIB or astuple(self)[1:] > astuple(before)[1:]
        )

    def __str__(self) -> str:
        return (
            f"{self.memory_kib} KiB, {self.descriptors} descriptors, "
            f"{self.threads} threads, {self.segments} mapped segments"
        )


def own_part(calls: int) -> int:
    """One rank: returns 1 if it holds more after `calls` calls than before them, or than before it joined."""
    alone = Holdings.now()
    with pycomm.init() as comm:
        rank = comm.rank
        x, out = np.ones(2, np.float32), np.empty(2, np.float32)

        def repeat(times: int) -> None:
            for _ in range(times):
                comm.all_reduce(x, out=out)

        repeat(2000)  # plans, buffers and caches are filled
        before, begin = Holdings.now(), time.perf_counter()
        repeat(calls)
        seconds, after = time.perf_counter() - begin, Holdings.now()
        right = bool((out == comm.size).all())
    left = Holdings.now()
    leaks = after.exceeds(before) or astuple(left)[1:] > astuple(alone)[1:] or not right
    if rank == 0 or leaks:
        verdict = "right" if right else "WRONG"
        print(f"{calls} all-reduces of 8 bytes, {seconds / calls * 1e6:.1f} us each, results {verdict}")
        for name, held in (("alone", alone), ("before", before), ("after", after), ("closed", left)):
            print(f"{name:>7}: {held}")
        print("LEAK" if leaks else "nothing leaked")
    return int(leaks)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench leak", description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--nodes", help="virtual nodes, so that TCP is tried too")
    options = parser.parse_args(arguments)
    if "RANK" in os.environ:
        return own_part(options.calls)
    shared = set(os.listdir("/dev/shm"))
    program = ["-m", "bench", "leak", "--calls", str(options.calls)]
    status = launcher.run(Namespace(n=options.ranks, nodes=options.nodes, timeout=600.0, program=program))
    files = set(os.listdir("/dev/shm")) - shared
    if files:
        print(f"LEAK: left in /dev/shm: {', '.join(sorted(files))}", file=sys.stderr)
    return status or int(bool(files))
