"""`pycomm tune`: measures what the planner believes, on the running job, and saves it as a profile."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from pycomm.bench.launch import run_ranks
from pycomm.bench.sizes import format_size
from pycomm.errors import InvalidArgument
from pycomm.launch import nodes
from pycomm.topo import Profile
from pycomm.topo.units import counted

HELP = (
    "Measures latency, time of a message, rate and cost of reducing on the wires of a job, and the best "
    "slice; prints them with predicted and measured times of an all-reduce, and saves them for "
    "PYCOMM_PROFILE. "
    "Starts its ranks itself, unless a launcher such as `pycomm run` or torchrun has started them."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    add("-o", "--output", type=Path, default=Path("pycomm-profile.json"), metavar="FILE", help="the profile")
    add("--ranks", type=int, metavar="N", help="how many ranks to start (2, or as many as --nodes makes)")
    add("--nodes", metavar="NODES", help=f"split them into virtual {nodes.HELP}")
    add("--report-to", type=Path, help=argparse.SUPPRESS)  # where rank 0 writes its text


def run(arguments: argparse.Namespace) -> int:
    """Returns 0, or the status of a rank that failed."""
    output = arguments.output.absolute()
    if not output.parent.is_dir():
        raise InvalidArgument(f"--output {arguments.output}: there is no folder {output.parent}")
    if "RANK" in os.environ:
        return _join(output, arguments.report_to)
    ranks = sum(nodes.node_sizes(arguments.nodes, arguments.ranks, 2))
    with tempfile.TemporaryDirectory(prefix="pycomm-tune-") as folder:
        report = Path(folder) / "report"
        words = ["pycomm", "tune", "--output", str(output), "--report-to", str(report)]
        status = run_ranks(ranks, arguments.nodes, words)
        print(report.read_text() if report.exists() else "", end="")
    return status


def _join(output: Path, report: Path | None) -> int:
    import pycomm
    from pycomm.tune import tuning

    with pycomm.init() as comm:
        places = f"{counted(comm.size, 'rank')} on {counted(len(comm.topology.nodes), 'node')}"
        day = date.today().isoformat()
        profile = tuning.measure_profile(comm, f"pycomm tune: {places}, {platform.node()}, {day}")
        checks = tuning.check(comm, profile)
        if comm.rank == 0:
            output.write_text(json.dumps(profile.to_dict(), indent=2) + "\n")
            text = "\n".join(_text(profile, checks)) + f"\nSaved: PYCOMM_PROFILE={output}\n"
            if report is None:
                print(text, end="", flush=True)
            else:
                report.write_text(text)
    return 0


def _text(profile: Profile, checks: Sequence[object]) -> list[str]:
    from pycomm.tune.tuning import Check

    lines = [
        profile.source,
        f"{'wire':<8} {'alpha us':>10} {'message us':>11} {'GB/s':>8} {'reducing GB/s':>14}",
    ]
    for name, wire in (("local", profile.local), ("network", profile.network)):
        reducing = 1e-9 / (wire.beta + wire.gamma)
        lines.append(
            f"{name:<8} {wire.alpha * 1e6:>10.2f} {wire.message * 1e6:>11.2f} {1e-9 / wire.beta:>8.3f} "
            f"{reducing:>14.3f}"
        )
    lines.append(f"slice    {format_size(profile.limits.slice_bytes):>10}")
    lines.append(f"{'size':>8} {'all_reduce by':<28} {'predicted us':>13} {'measured us':>12} {'ratio':>6}")
    for each in checks:
        assert isinstance(each, Check)
        ratio = each.measured_s / each.predicted_s if each.predicted_s else float("nan")
        lines.append(
            f"{format_size(each.size):>8} {each.algorithm:<28} {each.predicted_s * 1e6:>13.1f} "
            f"{each.measured_s * 1e6:>12.1f} {ratio:>6.2f}"
        )
    return lines
