"""Shapes: the places of ranks that every algorithm is proved over."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pycomm.topo.levels import LevelGroups, flat, split
from pycomm.topo.topology import Place, Topology

MAX_RANKS = 64
MAX_UNEVEN_RANKS = 12  # beyond, there are millions of ways to be uneven: those are sampled
MAX_RAILS_RANKS = 16  # of grids whose rails are then moved about
MAX_DOMAINS_RANKS = 32  # of every grid of three levels; beyond, these:
LARGE_DOMAIN_GRIDS = ((2, 4, 8), (3, 3, 7), (4, 2, 8), (4, 4, 4), (8, 2, 4), (16, 2, 2))
SAMPLES = 60
SEED = 20240229


@dataclass(frozen=True)
class Shape:
    """A topology cut into levels.

    Attributes:
        name: Such as "2 × 4" or "3+2+1".
        topology: Where the ranks are.
        levels: One level over all ranks, or several.
    """

    name: str
    topology: Topology
    levels: tuple[LevelGroups, ...]

    @cached_property
    def declared(self) -> list[tuple[int, int]]:
        """The pairs of one group that are on two rails: none in rail groups that keep to theirs."""
        crosses = self.topology.crosses
        groups = [group for level in self.levels for group in level.groups]
        return [(a, b) for group in groups for a in group for b in group if crosses(a, b)]

    @cached_property
    def has_odd_group(self) -> tuple[bool, ...]:
        """For each level, whether a group has a number of ranks that is no power of two."""
        return tuple(any(len(group) & (len(group) - 1) for group in level.groups) for level in self.levels)


def shapes(max_ranks: int = MAX_RANKS) -> list[Shape]:
    """All shapes of up to `max_ranks` ranks, small ones first.

    None comes twice. Over one level of all ranks in order the programs do not depend on where these are: one
    node of each size stands for all.
    """
    found: dict[object, Shape] = {}
    for shape in _all(max_ranks):
        places = shape.topology.node_numbers, shape.topology.rail_numbers
        found.setdefault(shape.levels if len(shape.levels) == 1 else (shape.levels, places), shape)
    return sorted(found.values(), key=lambda shape: shape.topology.world_size)


def _all(max_ranks: int) -> Iterator[Shape]:
    for sizes in _grids(max_ranks):
        yield from _sized(sizes)
    for sizes in _uneven(min(max_ranks, MAX_UNEVEN_RANKS)):
        yield from _sized(sizes)
    for sizes in _off_by_one(max_ranks):
        yield from _sized(sizes)
    for name, rails in _odd_rails(min(max_ranks, MAX_RAILS_RANKS)):
        yield from _shapes(name, Topology.from_rails(rails))
    yield from _samples(max_ranks)
    yield from _three_levels(max_ranks)


def _shapes(name: str, topology: Topology) -> Iterator[Shape]:
    yield Shape(name, topology, flat(topology))
    if 1 < len(topology.nodes) < topology.world_size:
        yield Shape(name, topology, split(topology))


def _sized(sizes: Sequence[int]) -> Iterator[Shape]:
    same = len(set(sizes)) == 1
    name = f"{len(sizes)} × {sizes[0]}" if same else "+".join(map(str, sizes))
    return _shapes(name, Topology.from_sizes(sizes))


def _grids(max_ranks: int) -> Iterator[list[int]]:
    """Every full grid; those of one node are every group size, and come first."""
    for nodes in range(1, max_ranks + 1):
        for local in range(1, max_ranks // nodes + 1):
            yield [local] * nodes


def _uneven(max_ranks: int) -> Iterator[list[int]]:
    """Every multiset of node sizes."""
    for ranks in range(1, max_ranks + 1):
        yield from _partitions(ranks, ranks)


def _partitions(ranks: int, most: int) -> Iterator[list[int]]:
    if ranks == 0:
        yield []
    for first in range(min(ranks, most), 0, -1):
        for rest in _partitions(ranks - first, first):
            yield [first, *rest]


def _off_by_one(max_ranks: int) -> Iterator[list[int]]:
    """Each grid with a rank too few or too many on its last node."""
    for sizes in _grids(max_ranks):
        *most, last = sizes
        if last > 1:
            yield [*most, last - 1]
        if sum(sizes) < max_ranks:
            yield [*most, last + 1]


def _odd_rails(max_ranks: int) -> Iterator[tuple[str, list[list[int]]]]:
    """Rails that are missing on a node, that no two nodes share, and that carry several ranks."""
    for sizes in _grids(max_ranks):
        nodes, local = len(sizes), sizes[0]
        if nodes < 2 or local < 2:
            continue
        full = list(range(local))
        grid = f"{nodes} × {local}"
        for missing in range(local):
            yield (
                f"{grid} without rail {missing} of the last node",
                [full] * (nodes - 1) + [[rail for rail in full if rail != missing]],
            )
        yield f"{grid}, disjoint rails", [[k * local + i for i in full] for k in range(nodes)]
        yield f"{grid}, rails shifted by a node", [[k + i for i in full] for k in range(nodes)]
        yield f"{grid}, two ranks a rail", [[i // 2 for i in full]] * nodes


def _samples(max_ranks: int) -> Iterator[Shape]:
    """A seeded sample of the rest: uneven nodes, rails at random, ranks numbered in any order."""
    dice = random.Random(SEED)
    for number in range(SAMPLES):
        sizes = [dice.randint(1, 16) for _ in range(dice.randint(2, 10))]
        width = max(sizes)
        places = [
            Place(f"node{k}", rail)
            for k, size in enumerate(sizes)
            for rail in (range(size) if number % 2 else sorted(dice.sample(range(width), size)))
        ]
        if number % 4 >= 2:
            dice.shuffle(places)
        if len(places) <= max_ranks:
            yield from _shapes(f"sample {number}: {'+'.join(map(str, sizes))}", Topology(places))


def _three_levels(max_ranks: int) -> Iterator[Shape]:
    """Grids of nodes × NUMA domains × ranks: rank-sharing inside a domain, then a node, then along a rail."""
    most = min(max_ranks, MAX_DOMAINS_RANKS)
    for nodes in range(2, most // 4 + 1):
        for domains in range(2, most // nodes // 2 + 1):
            for local in range(2, most // nodes // domains + 1):
                yield _three_level_grid(nodes, domains, local)
    for nodes, domains, local in LARGE_DOMAIN_GRIDS:
        if nodes * domains * local <= max_ranks:
            yield _three_level_grid(nodes, domains, local)


def _three_level_grid(nodes: int, domains: int, local: int) -> Shape:
    def rank(node: int, domain: int, i: int) -> int:
        return (node * domains + domain) * local + i

    every_node, every_domain, every_i = range(nodes), range(domains), range(local)
    levels = (
        LevelGroups(
            "local", tuple(tuple(rank(k, d, i) for i in every_i) for k in every_node for d in every_domain)
        ),
        LevelGroups(
            "local", tuple(tuple(rank(k, d, i) for d in every_domain) for k in every_node for i in every_i)
        ),
        LevelGroups(
            "rail", tuple(tuple(rank(k, d, i) for k in every_node) for d in every_domain for i in every_i)
        ),
    )
    return Shape(f"{nodes} × {domains} × {local}", Topology.grid(nodes, domains * local), levels)
