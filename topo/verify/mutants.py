"""Mutants: right programs, broken a little. The verifier has to catch each, or it is as good as before."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pycomm import _C
from pycomm.topo.outline import COLLECTIVES
from pycomm.topo.verify.numbers import NumberRun, WrongResult
from pycomm.topo.verify.shapes import shapes
from pycomm.topo.verify.ways import Way, ways

MAX_RANKS = 4  # every kind of step and every kind of level is there; more ranks give more of the same
ORDERS = 3  # random orders in which a survivor is run on numbers

Steps = list[_C.Step]
Change = tuple[str, Steps]  # what was done, and the steps that are left
Breaker = Callable[[_C.Program, Steps, int], Iterator[Change]]


@dataclass
class Hunt:
    """What became of the mutants.

    Attributes:
        caught: By kind, how many the verifier refused.
        equivalent: By kind, how many it let through that give the right numbers in any order tried.
        escaped: In words, those that it let through and that do not.
        seconds: How long it took.
    """

    caught: Counter[str] = field(default_factory=Counter)
    equivalent: Counter[str] = field(default_factory=Counter)
    escaped: list[str] = field(default_factory=list)
    seconds: float = 0.0


def hunt(max_ranks: int = MAX_RANKS, collectives: Sequence[str] = COLLECTIVES) -> Hunt:
    """Break every way to do the collectives over all shapes of up to `max_ranks` ranks, and verify it."""
    began = time.monotonic()
    found = Hunt()
    seen: set[tuple[str, bytes]] = set()
    for shape in shapes(max_ranks):
        for way in ways(shape, collectives):
            try:
                programs = _C.build(way.recipe)
            except ValueError:
                continue  # refused: nothing to break
            digest = way.goal.collective, b"".join(program.pack() for program in programs)
            if digest not in seen:
                seen.add(digest)
                judge(programs, way, found)
    found.seconds = time.monotonic() - began
    return found


def judge(programs: list[_C.Program], way: Way, found: Hunt) -> None:
    """Count what becomes of each mutant of the programs."""
    for kind, what, rank, mutant in mutants(programs):
        broken = [*programs[:rank], mutant, *programs[rank + 1 :]]
        if not passes(broken, way.goal):
            found.caught[kind] += 1
        elif (why := wrong(broken, way.goal)) is None:
            found.equivalent[kind] += 1
        else:
            found.escaped.append(f"{way.name}: rank {rank}, {what}: {why}")


def passes(programs: Sequence[_C.Program], goal: _C.Goal) -> bool:
    """Whether the verifier takes the programs, and every rank gets the same bits."""
    try:
        return _C.verify(programs, goal).same_bits
    except _C.ProgramError:
        return False


def wrong(programs: Sequence[_C.Program], goal: _C.Goal) -> str | None:
    """What is wrong with programs when they run on numbers, or None."""
    for seed in range(ORDERS):
        for in_place in (False, True):
            try:
                NumberRun(programs, goal, seed, in_place).check()
            except WrongResult as error:
                return f"{error}{' in place' if in_place else ''}"
    return None


def mutants(programs: Sequence[_C.Program]) -> Iterator[tuple[str, str, int, _C.Program]]:
    """Every mutant of one rank's program: kind, what was done to which step, rank, program."""
    for program in programs:
        channels = program.channels
        for c, steps in enumerate(channels):
            for i in range(len(steps)):
                for kind, breaker in BREAKERS.items():
                    for done, left in breaker(program, steps, i):
                        what = f'channel {c}, step {i} "{steps[i]!r}" {done}'
                        yield (
                            kind,
                            what,
                            program.rank,
                            program.with_channels([*channels[:c], left, *channels[c + 1 :]]),
                        )
        if len(channels) > 1 and channels[1]:
            merged = [channels[0] + channels[1], [], *channels[2:]]
            yield "merge", "channel 1 after channel 0", program.rank, program.with_channels(merged)


# -- the ways to break a step --------------------------------------------------------------------------


def _replaced(steps: Steps, i: int, **changes: object) -> Steps:
    step = steps[i].copy()
    for name, value in changes.items():
        setattr(step, name, value)
    return [*steps[:i], step, *steps[i + 1 :]]


def _drop(_: _C.Program, steps: Steps, i: int) -> Iterator[Change]:
    yield "dropped", steps[:i] + steps[i + 1 :]


def _repeat(_: _C.Program, steps: Steps, i: int) -> Iterator[Change]:
    yield "done twice", steps[: i + 1] + steps[i:]


def _swap(_: _C.Program, steps: Steps, i: int) -> Iterator[Change]:
    if i + 1 < len(steps) and steps[i] != steps[i + 1]:
        yield "swapped with the next", [*steps[:i], steps[i + 1], steps[i], *steps[i + 2 :]]


def _peer(program: _C.Program, steps: Steps, i: int) -> Iterator[Change]:
    for peer in range(program.world_size):
        if steps[i].peer not in (-1, peer) and peer != program.rank:
            yield f"with peer {peer}", _replaced(steps, i, peer=peer)


def _span(program: _C.Program, steps: Steps, i: int) -> Iterator[Change]:
    for name in ("dst", "src", "addend"):
        span: _C.Span = getattr(steps[i], name)
        if len(span) > 0:
            for changed in (_shifted(program, span), _cut(span)):
                if changed != span:
                    yield f"with {name} {changed!r}", _replaced(steps, i, **{name: changed})


def _reduction(_: _C.Program, steps: Steps, i: int) -> Iterator[Change]:
    if steps[i].op == "recv":
        yield "reducing", _replaced(steps, i, op="recv_reduce", src=steps[i].dst)
    if steps[i].op == "recv_reduce":
        yield "not reducing", _replaced(steps, i, op="recv")


def _target(_: _C.Program, steps: Steps, i: int) -> Iterator[Change]:
    first, second = steps[i].to
    if first >= 0:
        yield f"not sent on to {first}", _replaced(steps, i, to=(second, -1))
    if second >= 0:
        yield f"not sent on to {second}", _replaced(steps, i, to=(first, -1))


BREAKERS: dict[str, Breaker] = {
    "drop": _drop,
    "repeat": _repeat,
    "swap": _swap,
    "peer": _peer,
    "span": _span,
    "reduction": _reduction,
    "target": _target,
}


def _shifted(program: _C.Program, span: _C.Span) -> _C.Span:
    """One chunk on, round its buffer."""
    result = _C.Span("in", 0, 0)
    for buffer, index in span.chunks:
        blocks, chunks = program.layout(buffer)
        result += _C.Span(buffer, (index + 1) % (blocks * chunks), 1)
    return result


def _cut(span: _C.Span) -> _C.Span:
    """Without its last chunk."""
    result = _C.Span("in", 0, 0)
    for buffer, index in span.chunks[:-1]:
        result += _C.Span(buffer, index, 1)
    return result
