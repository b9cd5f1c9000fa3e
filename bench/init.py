"""How long pycomm.init() takes where all ranks of one machine call it at once; the slowest counts."""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

import pycomm
from bench.barrier import Barrier
from pycomm.bench.launch import run_ranks


def own_part(rounds: int, folder: Path) -> int:
    """One rank: joins and leaves `rounds` times; rank 0 prints what the slowest rank needed."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    barrier = Barrier(folder / "barrier", rank, ranks, yielding=True)
    slowest = []
    for _ in range(rounds):
        barrier.wait()
        begin = time.perf_counter()
        with pycomm.init() as comm:
            joined = time.perf_counter() - begin
            comm.barrier()
            used = time.perf_counter() - begin
            slowest.append(comm.all_reduce(np.array([joined, used]), op="max"))
    if rank == 0:
        for name, times in zip(("init", "init and a first barrier"), np.transpose(slowest), strict=True):
            text = ", ".join(f"{seconds * 1e3:.0f}" for seconds in times)
            print(f"{name}, {ranks} ranks: median {median(times) * 1e3:.0f} ms of {text}")
    return 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench init", description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--nodes", help="virtual nodes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # where the ranks meet
    options = parser.parse_args(arguments)
    if "RANK" in os.environ:
        return own_part(options.rounds, options.folder)
    with tempfile.TemporaryDirectory(prefix="pycomm-bench-") as folder:
        program = ["bench", "init", "--rounds", str(options.rounds), "--folder", folder]
        return run_ranks(options.ranks, options.nodes, program, timeout_s=120)
