"""Time a collective of pycomm and of its peers, interleaved: round after round, one library after the other.

A shared machine changes its pace from one minute to the next, so only neighbours in time may be compared, and
only ratios mean much. All libraries get ordinary NumPy arrays, are pinned alike, have their input rewritten
before each timed call, and start it together at a barrier that belongs to none of them. An iteration took as
long as its slowest rank; a figure is the median over the rounds of the median over a round's iterations.
"""

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TextIO

from bench.peers import LIBRARIES, Job, peer_class
from bench.workers import WorkerFailed, Workers
from pycomm.bench.measure import Case, workloads
from pycomm.bench.plot import plot, require_matplotlib
from pycomm.bench.progress import Progress
from pycomm.bench.record import Record, Setting, make_record
from pycomm.bench.sizes import format_size, parse_sizes
from pycomm.bench.workload import COLLECTIVES, Workload, parse_dtype

SECONDS_A_ROUND = 0.1
"""How long one library is measured at a time, roughly; its iterations follow from that."""


def arrangements(collective: str) -> tuple[bool, ...]:
    """In place or not: all_reduce both ways, broadcast as it is by nature, the others out of place."""
    return {"all_reduce": (False, True), "broadcast": (True,)}.get(collective, (False,))


class Comparison:
    """Several libraries whose workers are up."""

    def __init__(self, teams: Sequence[Workers], rounds: int) -> None:
        self._teams = teams
        self._rounds = rounds

    def measure(self, work: Workload, in_place: bool) -> list[Record]:
        """One record a library, for those that can do it."""
        request = {
            "collective": work.collective,
            "count": work.count,
            "dtype": work.dtype.name,
            "op": work.op,
            "in_place": in_place,
        }
        able: list[tuple[Workers, int, int]] = []
        for team in self._teams:
            trial = team.ask(request | {"check": True, "warm_up": 1, "iterations": 3})
            if "times_ns" in trial[0]:
                iterations = round(SECONDS_A_ROUND / max(1e-6, median(slowest(trial))))
                wrong = sum(answer["wrong"] for answer in trial)
                able.append((team, min(1000, max(3, iterations)), wrong))
        rounds: dict[str, list[list[float]]] = {team.job.library: [] for team, _, _ in able}
        for _ in range(self._rounds):
            for team, iterations, _ in able:
                answers = team.ask(request | {"check": False, "warm_up": 1, "iterations": iterations})
                rounds[team.job.library].append(slowest(answers))
        return [
            self._record(work, team.job, in_place, rounds[team.job.library], wrong) for team, _, wrong in able
        ]

    def _record(
        self, work: Workload, job: Job, in_place: bool, rounds: list[list[float]], wrong: int
    ) -> Record:
        """Rounds have equal weight: the median of their medians counts; all iterations give the p99."""
        setting = Setting(job.library, "default", job.nodes, in_place)
        medians = make_record(work, setting, [median(times) for times in rounds], wrong)
        together = make_record(work, setting, [time for times in rounds for time in times], wrong)
        return Record(**vars(medians) | {"p99_us": together.p99_us, "iterations": together.iterations})


def slowest(answers: Sequence[dict[str, Any]]) -> list[float]:
    """Seconds of each iteration: those of the rank that took longest."""
    return [max(times) / 1e9 for times in zip(*(answer["times_ns"] for answer in answers), strict=True)]


def table_header(libraries: Sequence[str]) -> str:
    """The head of the table: medians of all libraries, then each peer's time over pycomm's."""
    peers = [f"{library + '/pycomm':>16}" for library in libraries if library != "pycomm"]
    return (
        f"{'size':>8} {'buffers':>12}" + "".join(f"{name + ' us':>14}" for name in libraries) + "".join(peers)
    )


def table_row(libraries: Sequence[str], size: int, in_place: bool, records: Sequence[Record]) -> str:
    """One size; a library that cannot do it has a dash."""
    times = {record.library: record.median_us for record in records}
    line = f"{format_size(size):>8} {'in place' if in_place else 'out of place':>12}"
    for library in libraries:
        line += f"{times[library]:>14.2f}" if library in times else f"{'-':>14}"
    for library in libraries:
        if library != "pycomm":
            known = library in times and "pycomm" in times
            line += f"{times[library] / times['pycomm']:>16.2f}" if known else f"{'-':>16}"
    return line


@contextlib.contextmanager
def start(libraries: Sequence[str], ranks: int, nodes: int) -> Iterator[list[Workers]]:
    """The workers of all libraries that are installed; says which are not, and leaves them out."""
    with contextlib.ExitStack() as stack:
        teams = []
        for library in libraries:
            job = Job(library, ranks, nodes, Path())
            reason = peer_class(library).missing(job)
            if reason:
                print(f"# {library} left out: {reason}")
                continue
            try:
                teams.append(stack.enter_context(Workers(library, ranks, nodes)))
            except WorkerFailed as error:
                if library == "pycomm":
                    raise
                print(f"# {library} left out: {error}")
        yield teams


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench compare", description=__doc__)
    parser.add_argument("collective", choices=COLLECTIVES)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=1, help="virtual nodes, which MPI libraries cannot have")
    parser.add_argument(
        "--sizes", type=parse_sizes, default=parse_sizes("8,64K,1M"), help="8,64K or LO:HI[:FACTOR]"
    )
    parser.add_argument(
        "--against", default="gloo,mpich,openmpi,impi", help=f"any of {', '.join(LIBRARIES[1:])}"
    )
    parser.add_argument("--dtype", type=parse_dtype, default=parse_dtype("float32"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="JSON lines to write")
    parser.add_argument("--plot", type=Path, help="picture to write")
    options = parser.parse_args(arguments)
    options.libraries = ["pycomm", *(name for name in options.against.split(",") if name)]
    unknown = set(options.libraries) - set(LIBRARIES)
    if unknown:
        parser.error(
            f"--against: no such library: {', '.join(sorted(unknown))}; there are {', '.join(LIBRARIES)}"
        )
    return options


def run(options: argparse.Namespace, json_lines: TextIO | None) -> list[Record]:
    """Measures, prints the table as it grows, writes JSON lines as they come."""
    records: list[Record] = []
    with start(options.libraries, options.ranks, options.nodes) as teams:
        names = [team.job.library for team in teams]
        print(
            f"# {options.collective}, {options.dtype}, {options.ranks} ranks, {options.nodes} node(s), ",
            end="",
        )
        print(f"{os.cpu_count()} CPUs; medians of {options.rounds} interleaved rounds, slowest rank")
        print(table_header(names), flush=True)
        comparison = Comparison(teams, options.rounds)
        works = workloads(Case(options.collective, options.dtype), options.sizes, 0, options.ranks)
        cells = [(work, place) for work in works for place in arrangements(options.collective)]
        with Progress(len(cells)) as progress:
            for work, in_place in cells:
                progress.step(format_size(work.size_bytes))
                measured = comparison.measure(work, in_place)
                progress.clear()
                print(table_row(names, work.size_bytes, in_place, measured), flush=True)
                records += measured
                if json_lines:
                    json_lines.writelines(record.to_json() + "\n" for record in measured)
    return records


def main(arguments: Sequence[str]) -> int:
    """Returns 1 where a library gave a wrong result."""
    options = parse(arguments)
    if options.plot:
        require_matplotlib()
    with contextlib.ExitStack() as stack:
        json_lines = None
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            json_lines = stack.enter_context(options.json.open("w", buffering=1))
        records = run(options, json_lines)
    if options.plot:
        plot(records, options.plot)
    liars = sorted({record.library for record in records if record.wrong})
    if liars:
        print(f"# WRONG results: {', '.join(liars)}")
    return int(bool(liars))
