"""`pycomm bench`: measures a collective in the manner of nccl-tests."""

from __future__ import annotations

import argparse
import os
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pycomm.bench.launch import run_ranks
from pycomm.bench.measure import Case, Effort, measure_row, workloads
from pycomm.bench.pattern import OPS
from pycomm.bench.plot import require_matplotlib
from pycomm.bench.report import RemoteReport, Report, shown
from pycomm.bench.sizes import parse_size, size_range
from pycomm.bench.workload import COLLECTIVES, parse_dtype
from pycomm.errors import InvalidArgument
from pycomm.launch import nodes

HELP = (
    "Measures a collective over a range of sizes and counts wrong results, in the manner of nccl-tests. "
    "Starts its ranks itself, unless a launcher such as `pycomm run` or torchrun has started them."
)

_OPS = {"prod": "product", "mean": "avg"} | {op: op for op in OPS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; their letters are those of nccl-tests."""
    add = parser.add_argument
    add("collective", choices=COLLECTIVES)
    add("-b", "--minbytes", type=_read(parse_size), default=8, metavar="SIZE", help="first size (8)")
    add("-e", "--maxbytes", type=_read(parse_size), default=64 << 20, metavar="SIZE", help="last size (64M)")
    add("-f", "--stepfactor", type=int, default=2, metavar="F", help="from one size to the next (2)")
    add("-n", "--iters", type=int, default=20, metavar="N", help="timed iterations of each size (20)")
    add("-w", "--warmup-iters", type=int, default=5, metavar="N", help="untimed iterations of each size (5)")
    add(
        "-d",
        "--datatype",
        type=_read(parse_dtype),
        default=parse_dtype("float32"),
        metavar="DTYPE",
        help="int8 … int64, uint8 … uint64, float16, bfloat16, float32, float64 (float32)",
    )
    add("-o", "--op", choices=sorted(_OPS), default="sum", help="reduction (sum)")
    add("-r", "--root", type=int, default=0, metavar="RANK", help="root of broadcast and reduce (0)")
    add(
        "-c",
        "--check",
        type=int,
        default=1,
        metavar="N",
        help="checked iterations of each size (1), 0 for none",
    )
    add(
        "-z",
        "--blocking",
        type=int,
        choices=(0, 1),
        default=1,
        help="0: issue all calls, then wait for all (1)",
    )
    add("--algorithm", help="instead of what the planner chooses")
    add("--transport", choices=("auto", "tcp"), help="tcp: also between ranks of one node")
    add("--ranks", type=int, metavar="N", help="how many ranks to start (2, or as many as --nodes makes)")
    add("--nodes", metavar="NODES", help=f"split them into virtual {nodes.HELP}")
    add("--json", type=Path, metavar="FILE", help="write JSON lines, one a measurement")
    add("--plot", type=Path, metavar="FILE.svg", help="draw time and bus bandwidth")
    add("--report-to", type=Path, help=argparse.SUPPRESS)  # the pipe of the process that started these ranks


def _read(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """The same parser; argparse prints what it says of a wrong value."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as why:
            raise argparse.ArgumentTypeError(str(why)) from None

    return parse_argument


def run(arguments: Namespace) -> int:
    """Returns 0 if all results were right, 1 if not, or the status of a rank that failed."""
    sizes = _check(arguments)
    if arguments.transport:
        os.environ["PYCOMM_TRANSPORT"] = arguments.transport
    if "RANK" in os.environ:
        return _join(arguments, sizes)
    rows = len(workloads(_case(arguments), sizes, 0, arguments.ranks))
    report = Report(arguments.collective, rows, arguments.json, arguments.plot)
    with tempfile.TemporaryDirectory(prefix="pycomm-bench-") as folder:
        pipe = Path(folder) / "report"
        with shown(report, pipe):
            command = ["pycomm", "bench", *_words(arguments), "--report-to", str(pipe)]
            status = run_ranks(arguments.ranks, arguments.nodes, command)
    return status or int(not report.finish())


def _join(arguments: Namespace, sizes: list[int]) -> int:
    import pycomm

    case = _case(arguments)
    effort = Effort(arguments.iters, arguments.warmup_iters, arguments.check, bool(arguments.blocking))
    with pycomm.init() as comm:
        works = workloads(case, sizes, comm.rank, comm.size)
        report: Report | RemoteReport | None = None
        if comm.rank == 0 and arguments.report_to:
            report = RemoteReport(arguments.report_to)
        elif comm.rank == 0:
            report = Report(case.collective, len(works), arguments.json, arguments.plot)
        for work in works:
            if report:
                report.begin(work.size_bytes)
            row = measure_row(comm, case, work, effort)
            if report:
                report.add(row)
    return int(not report.finish()) if report else 0


def _case(arguments: Namespace) -> Case:
    return Case(
        arguments.collective, arguments.datatype, _OPS[arguments.op], arguments.root, arguments.algorithm
    )


def _check(arguments: Namespace) -> list[int]:
    """The sizes; the number of ranks is filled in. Raises InvalidArgument, before any rank is started."""
    if arguments.iters < 1 or min(arguments.warmup_iters, arguments.check) < 0:
        raise InvalidArgument("-n must be at least 1, -w and -c at least 0")
    if "RANK" not in os.environ:
        arguments.ranks = sum(nodes.node_sizes(arguments.nodes, arguments.ranks, 2))
        if not 0 <= arguments.root < arguments.ranks:
            raise InvalidArgument(f"there is no rank {arguments.root} among {arguments.ranks} to be the root")
    try:
        if arguments.plot:
            require_matplotlib()
        return size_range(arguments.minbytes, arguments.maxbytes, arguments.stepfactor)
    except (ValueError, ModuleNotFoundError) as why:
        raise InvalidArgument(str(why)) from None


def _words(arguments: Namespace) -> list[str]:
    """The command line that asks the ranks for the same."""
    words = [arguments.collective, "-d", arguments.datatype.name]
    options = {
        "-b": arguments.minbytes,
        "-e": arguments.maxbytes,
        "-f": arguments.stepfactor,
        "-n": arguments.iters,
        "-w": arguments.warmup_iters,
        "-o": arguments.op,
        "-r": arguments.root,
        "-c": arguments.check,
        "-z": arguments.blocking,
        "--algorithm": arguments.algorithm,
    }
    for option, value in options.items():
        words += [] if value is None else [option, str(value)]
    return words
