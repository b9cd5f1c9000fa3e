"""`pycomm verify`: proves every algorithm, and that the verifier can fail."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pycomm.bench.progress import Progress
from pycomm.machine import usable_cpus
from pycomm.topo.outline import COLLECTIVES
from pycomm.topo.verify.mutants import MAX_RANKS as MAX_MUTANT_RANKS
from pycomm.topo.verify.mutants import Hunt, hunt
from pycomm.topo.verify.prove import Proof, prove_all
from pycomm.topo.verify.shapes import MAX_RANKS

HELP = (
    "Builds every plan that the planner could choose, over every shape of nodes and rails, and proves it: "
    "its programs run on symbols, and must end with the right result on every rank, with the same bits "
    "everywhere, without a deadlock or a race, and with no undeclared byte from one rail to another."
)
MAX_SHOWN_FAULTS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "--max-ranks",
        type=_positive,
        default=MAX_RANKS,
        metavar="N",
        help=f"shapes up to N ranks ({MAX_RANKS})",
    )
    parser.add_argument(
        "--collective", action="append", choices=COLLECTIVES, help="only this one; may be given several times"
    )
    parser.add_argument(
        "--mutants",
        action="store_true",
        help="also break programs a little, and see that each is refused or still right",
    )
    parser.add_argument(
        "--jobs", type=_positive, default=usable_cpus(), metavar="N", help="threads (all CPUs)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Proves, prints what was proved, and returns 1 if there was a fault."""
    collectives = arguments.collective or COLLECTIVES
    proof = _prove(arguments.max_ranks, collectives, arguments.jobs)
    print(_proof_text(proof, arguments.max_ranks))
    faults = proof.faults
    if arguments.mutants:
        found = hunt(min(arguments.max_ranks, MAX_MUTANT_RANKS), collectives)
        print(_hunt_text(found))
        faults = faults + found.escaped
    for fault in faults[:MAX_SHOWN_FAULTS]:
        print(f"  {fault}")
    if len(faults) > MAX_SHOWN_FAULTS:
        print(f"  … and {len(faults) - MAX_SHOWN_FAULTS} more")
    return 1 if faults else 0


def _prove(max_ranks: int, collectives: Sequence[str], jobs: int) -> Proof:
    bar: Progress | None = None

    def progress(done: int, total: int) -> None:
        nonlocal bar
        bar = bar or Progress(total)
        bar.step("shapes proved")

    proof = prove_all(max_ranks, collectives, jobs, progress)
    if bar is not None:
        bar.clear()
    return proof


def _proof_text(proof: Proof, max_ranks: int) -> str:
    text = (
        f"proved {proof.proved:,} plans of up to {max_ranks} ranks "
        f"({proof.programs:,} programs, {proof.steps:,} steps) in {proof.seconds:.1f} s"
    )
    if proof.refused:
        text += f"; {proof.refused:,} were refused: halving needs a power of two"
    return f"{text}; {len(proof.faults):,} are wrong:" if proof.faults else text


def _hunt_text(found: Hunt) -> str:
    caught, equivalent = found.caught.total(), found.equivalent.total()
    total = caught + equivalent + len(found.escaped)
    text = (
        f"caught {caught:,} of {total:,} broken programs in {found.seconds:.1f} s; "
        f"{equivalent:,} others are equivalent: run on numbers, they are right"
    )
    return f"{text}; {len(found.escaped):,} escaped:" if found.escaped else text


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number
