"""Collectives of pycomm and of its peers over an emulated rail-optimised network, against its bound.

Brings a lab of network namespaces up (root, Linux), starts the ranks of every library on its hosts, one for
each NIC, and times them in interleaved rounds. The counters of all NICs and of the spine around the timed
calls say what moved where. The lab is brought down again whatever happens.
"""

import argparse
import contextlib
import math
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from bench.fabric_cell import Cell, LeftOut, Team
from bench.fabric_record import HEADER, FabricRecord, Setup
from bench.peers import LIBRARIES, Job, peer_class
from bench.placement import PORT, Placement, in_order, shuffled, topology
from bench.workers import WorkerFailed, Workers
from pycomm.bench.measure import Case, workloads
from pycomm.bench.plot import plot, require_matplotlib
from pycomm.bench.progress import Progress
from pycomm.bench.record import Record, Setting, make_record
from pycomm.bench.sizes import format_size, parse_sizes
from pycomm.bench.workload import COLLECTIVES, Workload, parse_dtype
from pycomm.errors import Error
from pycomm.lab import Lab


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench fabric", description=__doc__)
    add, size_list = parser.add_argument, parse_sizes("1M,16M,64M")
    add("collective", choices=[name for name in COLLECTIVES if name != "barrier"])
    add("--hosts", type=int, default=4)
    add("--rails", type=int, help="NICs of each host (default: 2)")
    add("--ranks-per-host", help="2,3,1 instead of --rails: ranks, and so NICs, of each host")
    add("--rate", type=parse_rate, default=200.0, metavar="200mbit", help="of each NIC")
    add("--spine", type=parse_rate, metavar="RATE", help="of each leaf's link to the spine (default: --rate)")
    add("--sizes", type=parse_sizes, default=size_list, help="8,64K or LO:HI[:FACTOR]")
    add("--dtype", type=parse_dtype, default=parse_dtype("float32"))
    add("--against", default="gloo,openmpi", help=f"any of {', '.join(LIBRARIES[1:])}; empty: none")
    add("--rounds", type=int, default=3)
    add("--policy", choices=("rail_first", "cheapest", "strict"), help="of a second pycomm in the table")
    add("--algorithm", help="of the second pycomm")
    add("--shuffle", type=int, metavar="SEED", help="the second pycomm's ranks lie in any order on the hosts")
    add("--json", type=Path, help="JSON lines to write")
    add("--plot", type=Path, help="picture to write")
    options = parser.parse_args(arguments)
    try:
        _complete(options)
    except ValueError as error:
        parser.error(str(error))
    return options


def parse_rate(text: str) -> float:
    """Mbit/s: `200mbit`, `1gbit`."""
    for unit, scale in (("mbit", 1.0), ("gbit", 1000.0)):
        with contextlib.suppress(ValueError):
            rate = float(text.lower().removesuffix(unit)) * scale
            if text.lower().endswith(unit) and 0 < rate < math.inf:
                return rate
    raise argparse.ArgumentTypeError(f"{text!r} is not a rate: write 200mbit or 1gbit")


def _complete(options: argparse.Namespace) -> None:
    """Checks what argparse cannot, and fills in what follows from the rest."""
    options.spine = options.spine or options.rate
    options.peers = [name for name in options.against.split(",") if name]
    unknown = set(options.peers) - set(LIBRARIES[1:])
    if unknown:
        raise ValueError(f"--against: no library {sorted(unknown)[0]!r}: use {', '.join(LIBRARIES[1:])}")
    if options.ranks_per_host is None:
        options.ranks = [2 if options.rails is None else options.rails] * options.hosts
    elif options.rails is None:
        parts = options.ranks_per_host.split(",")
        options.ranks = [int(part) if part.isdecimal() else 0 for part in parts]
    else:
        raise ValueError("--rails, --ranks-per-host: say one of the two")
    if min(options.ranks, default=0) < 1 or len(options.ranks) != options.hosts:
        raise ValueError("--ranks-per-host: give the ranks of each of --hosts, such as 2,3,1")
    if options.hosts < 2 or options.rounds < 1:
        raise ValueError("it takes two hosts and one round")
    if len(set(options.ranks)) > 1 and options.peers:
        print("# hosts with unlike numbers of ranks: pycomm alone", file=sys.stderr)
        options.peers = []


def placements(options: argparse.Namespace, lab: Lab) -> list[tuple[str, str, Placement]]:
    """Library, title and placement of every team that is wanted."""
    hosts = in_order(options.ranks)
    wanted = [("pycomm", "pycomm", Placement(lab, hosts))]
    if options.policy or options.algorithm or options.shuffle is not None:
        settings = {"PYCOMM_POLICY": options.policy, "PYCOMM_ALGORITHM": options.algorithm}
        told = {name: value for name, value in settings.items() if value}
        words = [*told.values(), *(["shuffled"] if options.shuffle is not None else [])]
        if options.shuffle is not None:
            hosts = shuffled(options.ranks, options.shuffle)
        wanted.append(("pycomm", f"pycomm {', '.join(words)}", Placement(lab, hosts, PORT + 1, told)))
    return wanted + [(name, name, Placement(lab, in_order(options.ranks))) for name in options.peers]


def start(
    options: argparse.Namespace, lab: Lab, stack: contextlib.ExitStack, progress: Progress
) -> list[Team]:
    """Starts the ranks of all libraries; says which cannot be, and leaves them out."""
    teams = []
    for library, title, placement in placements(options, lab):
        progress.step(f"starting {title}")
        ranks = len(placement.hosts)
        reason = peer_class(library).missing(Job(library, ranks, 1, Path(), placement))
        if reason is None:
            try:
                workers = Workers(library, ranks, placement=placement)
                teams.append(Team(title, stack.enter_context(workers)))
            except WorkerFailed as error:
                if library == "pycomm":
                    raise
                reason = str(error)
        if reason:
            progress.clear()
            print(f"# {title} left out: {reason}", flush=True)
    return teams


def measure(cells: list[Cell], rounds: int, progress: Progress) -> list[Cell]:
    """One size: a first call of every library, checked, then rounds. Returns who got to the end."""
    for turn in range(1 + rounds):
        for cell in list(cells):
            progress.step(f"{format_size(cell.work.size_bytes)}, {cell.team.title}, round {turn}/{rounds}")
            try:
                cell.time() if turn else cell.first_call()
                if turn == rounds:
                    cell.check_bytes()
            except (WorkerFailed, LeftOut) as reason:
                if cell.team.workers.job.library == "pycomm":
                    raise
                progress.clear()
                print(f"# {cell.team.title} left out from here on: {reason}", flush=True)
                cells.remove(cell)
    return cells


def run(options: argparse.Namespace, setup: Setup, show: Callable[[Sequence[FabricRecord]], None]) -> None:
    """Brings the lab up, measures all sizes, shows each when it is done."""
    works = workloads(Case(options.collective, options.dtype), options.sizes, 0, sum(options.ranks))
    libraries = (
        1 + len(options.peers) + bool(options.policy or options.algorithm or options.shuffle is not None)
    )
    steps = 1 + libraries * (1 + len(works) * (1 + options.rounds))
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress(steps))
        progress.step("bringing the lab up")
        lab = stack.enter_context(Lab(options.hosts, options.ranks, options.rate, options.spine))
        teams = start(options, lab, stack, progress)
        for work in works:
            done = measure([Cell(lab, setup, team, work) for team in teams], options.rounds, progress)
            teams = [cell.team for cell in done]
            progress.clear()
            show([cell.record() for cell in done])
        progress.step("taking the lab down")


def title(options: argparse.Namespace) -> str:
    """What is measured, in a line."""
    even = len(set(options.ranks)) == 1
    rails = options.ranks[0] if even else "+".join(map(str, options.ranks))
    spine = f", spine {options.spine:g} Mbit/s" if options.spine != options.rate else ""
    return (
        f"# {options.collective}, {options.dtype}, {options.hosts} hosts x {rails} rails at "
        f"{options.rate:g} Mbit/s{spine}, one rank a NIC; medians of {options.rounds} interleaved rounds, "
        f"slowest rank"
    )


def bounds(setup: Setup, records: Sequence[FabricRecord], options: argparse.Namespace) -> list[Record]:
    """The bound as a line of the plot."""
    works = {(record.count, record.ranks): record.in_place for record in records}
    found = []
    for (elements, ranks), in_place in works.items():
        work = Workload(options.collective, elements, options.dtype, 0, ranks)
        setting = Setting("bound of the network", "none", options.hosts, in_place)
        found.append(make_record(work, setting, [setup.bound_s(work)], None))
    return found


def main(arguments: Sequence[str]) -> int:
    """Returns 1 where a library gave a wrong result, 2 where there is no lab, 130 if interrupted."""
    options = parse(arguments)
    if options.plot:
        require_matplotlib()
    setup = Setup(topology(in_order(options.ranks)), max(options.ranks), options.rate, options.spine)
    records: list[FabricRecord] = []
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with contextlib.ExitStack() as stack:
        json_lines: TextIO | None = None
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            json_lines = stack.enter_context(options.json.open("w", buffering=1))

        def show(found: Sequence[FabricRecord]) -> None:
            records.extend(found)
            print("\n".join(record.row() for record in found), flush=True)
            if json_lines:
                json_lines.writelines(record.to_json() + "\n" for record in found)

        print(title(options), HEADER, sep="\n", flush=True)
        try:
            run(options, setup, show)
        except (Error, WorkerFailed) as error:
            print(f"bench fabric: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("bench fabric: interrupted", file=sys.stderr)
            return 130
    if options.plot:
        plot([*records, *bounds(setup, records, options)], options.plot)
    liars = sorted({record.library for record in records if record.wrong})
    if liars:
        print(f"# WRONG results: {', '.join(liars)}")
    return int(bool(liars))
