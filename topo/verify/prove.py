"""Proves every way to do every collective over every shape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pycomm import _C
from pycomm.topo.outline import COLLECTIVES
from pycomm.topo.verify.shapes import MAX_RANKS, Shape, shapes
from pycomm.topo.verify.ways import ways

Progress = Callable[[int, int], None]  # shapes done, shapes in all


@dataclass
class Proof:
    """What was proved.

    Attributes:
        proved: Recipes whose programs are the collective, with the same bits on every rank.
        programs: Of single ranks, in all of these.
        steps: In all of these.
        refused: Recipes that ask for halving where it cannot be, and were refused by name.
        faults: In words, what is wrong with the others.
        seconds: How long it took.
    """

    proved: int = 0
    programs: int = 0
    steps: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Proof) -> None:
        """Add the counts of another part."""
        self.proved += other.proved
        self.programs += other.programs
        self.steps += other.steps
        self.refused += other.refused
        self.faults += other.faults


def prove_all(
    max_ranks: int = MAX_RANKS,
    collectives: Sequence[str] = COLLECTIVES,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Proof:
    """Prove the collectives over all shapes of up to `max_ranks` ranks, `jobs` shapes at a time."""
    began = time.monotonic()
    every = shapes(max_ranks)[::-1]  # the large ones first, so that no thread is left with one at the end
    total = Proof()
    for done, part in enumerate(_parts(every, collectives, jobs), 1):
        total.add(part)
        if progress is not None:
            progress(done, len(every))
    total.seconds = time.monotonic() - began
    return total


def _parts(every: Iterable[Shape], collectives: Sequence[str], jobs: int) -> Iterator[Proof]:
    """Threads, because all the work is done in C++ without the interpreter's lock."""
    if jobs == 1:
        yield from (prove_shape(shape, collectives) for shape in every)
        return
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda shape: prove_shape(shape, collectives), every)


def prove_shape(shape: Shape, collectives: Sequence[str] = COLLECTIVES) -> Proof:
    """Prove every way to do the collectives over one shape."""
    proof = Proof()
    for way in ways(shape, collectives):
        try:
            traffic = way.prove()
        except ValueError as error:
            if way.may_be_refused and not isinstance(error, _C.ProgramError):
                proof.refused += 1
            else:
                proof.faults.append(f"{way.name}: {error}")
            continue
        if not traffic.same_bits:
            proof.faults.append(
                f"{way.name}: the ranks add up in different orders, and so get different bits"
            )
            continue
        proof.proved += 1
        proof.programs += shape.topology.world_size
        proof.steps += traffic.steps
    return proof
