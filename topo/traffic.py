"""Traffic: who sends how much to whom, of every phase of a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

from pycomm.topo.outline import Phase, Team
from pycomm.topo.topology import Topology

Flow = tuple[int, int, Fraction, str]  # from position, to position, blocks, form: raw, partial or complete
Leaf = Callable[[Team], Iterator[Flow]]


@dataclass(frozen=True)
class Widths:
    """Bytes of an element: one rank's own or a result, and an incomplete sum."""

    storage: int
    partial: int

    def of(self, form: str) -> int:
        """Bytes of an element in a form."""
        return self.partial if form == "partial" else self.storage


def flows(op: str, algorithm: str, team: Team) -> Iterator[Flow]:
    """Every message of a leaf algorithm in one group, messages of a pair joined; none without bytes."""
    if not team.shares:
        return ((a, b, blocks, "complete") for a, b, blocks in team.moves)
    return (flow for flow in _FLOWS[op, algorithm](team) if flow[2])


def _own(team: Team, position: int) -> str:
    return "partial" if position in team.summed else "raw"


def _before(team: Team) -> list[Fraction]:
    """For each position the blocks of all shares before it; at the end, all."""
    return list(accumulate(team.shares, initial=Fraction(0)))


def _ring_reduce_scatter(team: Team) -> Iterator[Flow]:
    n = len(team.ranks)
    for i in range(n if n > 1 else 0):
        yield i, (i + 1) % n, team.shares[i - 1], _own(team, i)
        yield i, (i + 1) % n, team.blocks - team.shares[i] - team.shares[i - 1], "partial"


def _ring_all_gather(team: Team) -> Iterator[Flow]:
    n = len(team.ranks)
    for i in range(n if n > 1 else 0):
        yield i, (i + 1) % n, team.blocks - team.shares[(i + 1) % n], "complete"


def _direct_reduce_scatter(team: Team) -> Iterator[Flow]:
    for i in range(len(team.ranks)):
        for j, share in enumerate(team.shares):
            if i != j:
                yield i, j, share, _own(team, i)


def _direct_all_gather(team: Team) -> Iterator[Flow]:
    for i, share in enumerate(team.shares):
        for j in range(len(team.ranks)):
            if i != j:
                yield i, j, share, "complete"


def _direct_all_reduce(team: Team) -> Iterator[Flow]:
    for i in range(len(team.ranks)):
        for j in range(len(team.ranks)):
            if i != j:
                yield i, j, team.blocks, _own(team, i)


def _halving_reduce_scatter(team: Team) -> Iterator[Flow]:
    n, before = len(team.ranks), _before(team)
    distance = n // 2
    while distance >= 1:
        for i in range(n):
            given = (i ^ distance) & ~(distance - 1)
            form = _own(team, i) if distance == n // 2 else "partial"
            yield i, i ^ distance, before[given + distance] - before[given], form
        distance //= 2


def _halving_all_gather(team: Team) -> Iterator[Flow]:
    n, before, have = len(team.ranks), _before(team), 1
    while have < n:
        for i in range(n):
            mine = i & ~(have - 1)
            yield i, i ^ have, before[mine + have] - before[mine], "complete"
        have *= 2


def _halving_all_reduce(team: Team) -> Iterator[Flow]:
    n = len(team.ranks)
    core = 1 << (n.bit_length() - 1)
    folded = range(n - core)
    for i in folded:
        yield core + i, i, team.blocks, _own(team, core + i)
        yield i, core + i, team.blocks, "complete"
    share = (team.blocks / core,) * core
    inner = Team(team.ranks[:core], share, summed=team.summed | frozenset(folded))
    yield from _halving_reduce_scatter(inner)
    yield from _halving_all_gather(inner)


def _all_reduce(scatter: Callable[[Team], Iterator[Flow]], gather: Callable[[Team], Iterator[Flow]]) -> Leaf:
    def both(team: Team) -> Iterator[Flow]:
        yield from scatter(team)
        yield from gather(team)

    return both


def _tree_edges(team: Team) -> Iterator[tuple[int, int, bool]]:
    """Parent, child, and whether the child has children of its own."""
    n = len(team.ranks)
    for place in range(1, n):
        parent = place & (place - 1)
        has_children = place % 2 == 0 and place + 1 < n
        yield (team.root + parent) % n, (team.root + place) % n, has_children


def _tree_reduce(team: Team) -> Iterator[Flow]:
    for parent, child, has_children in _tree_edges(team):
        yield child, parent, team.blocks, "partial" if has_children else _own(team, child)


def _tree_broadcast(team: Team) -> Iterator[Flow]:
    for parent, child, _ in _tree_edges(team):
        yield parent, child, team.blocks, "complete"


def _ring_broadcast(team: Team) -> Iterator[Flow]:
    n = len(team.ranks)
    for place in range(n - 1):
        yield (team.root + place) % n, (team.root + place + 1) % n, team.blocks, "complete"


def _ring_reduce(team: Team) -> Iterator[Flow]:
    n = len(team.ranks)
    for place in range(1, n):
        sender = (team.root + place) % n
        yield sender, (sender + 1) % n, team.blocks, _own(team, sender) if place == 1 else "partial"


def _direct_broadcast(team: Team) -> Iterator[Flow]:
    for i in range(len(team.ranks)):
        if i != team.root:
            yield team.root, i, team.blocks, "complete"


def _direct_reduce(team: Team) -> Iterator[Flow]:
    for i in range(len(team.ranks)):
        if i != team.root:
            yield i, team.root, team.blocks, _own(team, i)


_FLOWS: dict[tuple[str, str], Leaf] = {
    ("all_reduce", "ring"): _all_reduce(_ring_reduce_scatter, _ring_all_gather),
    ("all_reduce", "halving"): _halving_all_reduce,
    ("all_reduce", "tree"): _all_reduce(_tree_reduce, _tree_broadcast),
    ("all_reduce", "direct"): _direct_all_reduce,
    ("reduce_scatter", "ring"): _ring_reduce_scatter,
    ("reduce_scatter", "halving"): _halving_reduce_scatter,
    ("reduce_scatter", "direct"): _direct_reduce_scatter,
    ("all_gather", "ring"): _ring_all_gather,
    ("all_gather", "halving"): _halving_all_gather,
    ("all_gather", "direct"): _direct_all_gather,
    ("broadcast", "ring"): _ring_broadcast,
    ("broadcast", "tree"): _tree_broadcast,
    ("broadcast", "direct"): _direct_broadcast,
    ("reduce", "ring"): _ring_reduce,
    ("reduce", "tree"): _tree_reduce,
    ("reduce", "direct"): _direct_reduce,
}


class Traffic:
    """What phases send, by pair of ranks: in blocks, and in bytes where a block has `count` elements."""

    def __init__(
        self, topology: Topology, phases: Iterable[tuple[Phase, str]], widths: Widths, count: int
    ) -> None:
        """Add up phases, each with its algorithm."""
        self.topology = topology
        self.blocks: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
        self.bytes: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
        for phase, algorithm in phases:
            for team in phase.teams:
                for a, b, blocks, form in flows(phase.op, algorithm, team):
                    pair = team.ranks[a], team.ranks[b]
                    self.blocks[pair] += blocks
                    self.bytes[pair] += blocks * count * widths.of(form)

    def within(self, amounts: Mapping[tuple[int, int], Fraction]) -> Fraction:
        """Of `blocks` or `bytes`, what stays inside the nodes."""
        nodes = self.topology.node_numbers
        return _total(amount for (a, b), amount in amounts.items() if nodes[a] == nodes[b])

    def across(self, amounts: Mapping[tuple[int, int], Fraction]) -> Fraction:
        """Of `blocks` or `bytes`, what leaves one rail for another."""
        return _total(amount for pair, amount in amounts.items() if self.topology.crosses(*pair))

    def along(self, amounts: Mapping[tuple[int, int], Fraction]) -> dict[int, Fraction]:
        """Of `blocks` or `bytes`, what goes from node to node on each rail; rails that carry none are there
        too.
        """
        nodes, rails = self.topology.node_numbers, self.topology.rail_numbers
        found = dict.fromkeys(self.topology.rails, Fraction(0))
        for (a, b), amount in amounts.items():
            if nodes[a] != nodes[b] and rails[a] == rails[b]:
                found[rails[a]] += amount
        return found

    @cached_property
    def crossing(self) -> tuple[tuple[int, int], ...]:
        """The (sender, receiver) pairs whose bytes cross rails, ascending: what a plan declares."""
        return tuple(sorted(pair for pair in self.blocks if self.topology.crosses(*pair)))


def _total(amounts: Iterable[Fraction]) -> Fraction:
    return sum(amounts, Fraction(0))
