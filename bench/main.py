"""What pycomm is about, in a minute: four ranks as two virtual nodes with two rails.

The plan and its proof; byte counters of the endpoints beside the plan's figures; the table of `pycomm bench`;
comparisons with gloo where PyTorch is installed. Plots and JSON lines go to build/bench/.
"""

import argparse
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import pycomm
from bench import compare
from bench.peers import ROOT
from pycomm import cli
from pycomm.bench.launch import run_ranks
from pycomm.bench.sizes import format_size
from pycomm.topo.topology import Topology

Counts = NDArray[np.int64]

OUTPUT = ROOT / "build" / "bench"
RANKS, NODES = 4, 2
BYTES = 1 << 20
CALLS = 8


def machine() -> str:
    """One line: processor, usable CPUs, kernel, Python."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cpus = len(os.sched_getaffinity(0))
    model = models[0] if models else platform.machine()
    return (
        f"{model}, {cpus} CPUs, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def own_part(path: Path) -> int:
    """One rank: compares its counters with the plan; rank 0 writes what all found to `path`."""
    with pycomm.init() as comm:
        x = np.ones(BYTES // 4, np.float32)
        plan = comm.plan("all_reduce", x.size)
        comm.all_reduce(x)
        before = comm.counters().peers
        for _ in range(CALLS):
            comm.all_reduce(x)
        after = comm.counters().peers
        counted = np.zeros(comm.size, np.int64)
        for peer, moved in after.items():
            counted[peer] = moved.sent_bytes - (before[peer].sent_bytes if peer in before else 0)
        everyone = comm.all_gather(counted)
        if comm.rank:
            return 0
        predicted = np.zeros_like(everyone)
        for pair, amount in plan.traffic.bytes.items():
            predicted[pair] = round(amount * CALLS)
        lines = [plan.explain(), "", *compared(predicted, everyone, plan.topology)]
        path.write_text("\n".join(lines) + "\n")
    return int((predicted != everyone).any())


def compared(predicted: Counts, counted: Counts, topology: Topology) -> list[str]:
    """Predicted and counted bytes of every pair of ranks, and their sums by where they went."""
    what = f"{CALLS} all-reduces of {format_size(BYTES)}"
    lines = [f"Bytes sent in {what}: predicted by the plan, counted by the endpoints"]
    sums = {"inside a node": [0, 0], "along a rail": [0, 0], "across rails": [0, 0]}
    for a, b in np.ndindex(*counted.shape):
        if topology.node_of(a) == topology.node_of(b):
            where = "inside a node"
        else:
            where = "across rails" if topology.crosses(a, b) else "along a rail"
        both = (int(predicted[a, b]), int(counted[a, b]))
        sums[where] = [total + part for total, part in zip(sums[where], both, strict=True)]
        if any(both):
            lines.append(f"  rank {a} to rank {b}  {both[0]:>12} {both[1]:>12}  {where}")
    lines += [f"  {where:<16}  {total[0]:>12} {total[1]:>12}" for where, total in sums.items()]
    lines.append(
        "The counters agree with the plan." if (predicted == counted).all() else "They do NOT agree."
    )
    return lines


def section(title: str) -> None:
    print(f"\n== {title}", flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench main", description=__doc__)
    parser.add_argument("--write-to", type=Path, help=argparse.SUPPRESS)  # where rank 0 leaves its findings
    options = parser.parse_args(arguments)
    if "RANK" in os.environ:
        return own_part(options.write_to)
    print(f"pycomm {pycomm.__version__} on {machine()}")
    section(f"The plan of an all-reduce of {format_size(BYTES)} over {RANKS} ranks on {NODES} virtual nodes")
    with tempfile.TemporaryDirectory(prefix="pycomm-bench-") as folder:
        findings = Path(folder) / "findings"
        status = run_ranks(RANKS, str(NODES), ["bench", "main", "--write-to", str(findings)], timeout_s=60)
        print(findings.read_text() if findings.exists() else "", end="", flush=True)
    section(f"pycomm bench all_reduce --ranks {RANKS} --nodes {NODES}")
    table = [
        "bench",
        "all_reduce",
        "-b",
        "8",
        "-e",
        "16M",
        "-f",
        "8",
        "--ranks",
        str(RANKS),
        "--nodes",
        str(NODES),
    ]
    table += ["--json", str(OUTPUT / "all_reduce.json"), "--plot", str(OUTPUT / "all_reduce.svg")]
    status |= cli.main(table)
    for ranks, nodes in ((2, 1), (RANKS, NODES)):
        section(f"Against gloo, {ranks} ranks on {nodes} node{'s' * (nodes > 1)}")
        name = f"compare_{ranks}_ranks"
        words = ["all_reduce", "--ranks", str(ranks), "--nodes", str(nodes), "--sizes", "8,64K,1M,16M"]
        words += [
            "--against",
            "gloo",
            "--json",
            str(OUTPUT / f"{name}.json"),
            "--plot",
            str(OUTPUT / f"{name}.svg"),
        ]
        status |= compare.main(words)
    print(f"\nPlots and JSON lines: {os.path.relpath(OUTPUT)}")
    return status
