"""Where the ranks of a job are: on which node, on which rail."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index as as_index

from pycomm.topo.units import counted

MAX_RAIL = 2**31 - 1  # what the core counts rails with
MAX_SPELLED_RANKS = 64  # a repr spells out the ranks of a topology up to this size


@dataclass(frozen=True)
class Place:
    """Where one rank is.

    Attributes:
        node: Name of its node. Two ranks of one node can hand each other a memfd.
        rail: Number of the rail by which its traffic enters the network.
        rail_source: How the rail was found, such as "PYCOMM_RAIL" or "local index". Informative: no plan
            depends on it.
        nics: Over how many NICs its traffic with other nodes is striped.
    """

    node: str
    rail: int
    rail_source: str = "local index"
    nics: int = 1

    def __post_init__(self) -> None:
        """Check what a plan rests on.

        Raises:
            ValueError: For a node without a name or a rail that is not a number from 0 on.
        """
        if not isinstance(self.node, str) or not self.node:
            raise ValueError(f"a place needs the name of its node, not {self.node!r}")
        if isinstance(self.rail, bool) or not isinstance(self.rail, int) or not 0 <= self.rail <= MAX_RAIL:
            raise ValueError(f"a rail is a number from 0 to {MAX_RAIL}, not {self.rail!r} (node {self.node})")
        if isinstance(self.nics, bool) or not isinstance(self.nics, int) or self.nics < 1:
            raise ValueError(f"a place has at least one NIC, not {self.nics!r} (node {self.node})")


@dataclass(frozen=True, repr=False)
class Topology:
    """The place of every rank; immutable. Nodes are numbered in the order in which they first appear."""

    places: tuple[Place, ...]

    def __init__(self, places: Iterable[Place]) -> None:
        """Take one place for each rank, in rank order.

        Raises:
            ValueError: If there is no rank, or something that is not a `Place`.
        """
        object.__setattr__(self, "places", tuple(places))
        if not self.places:
            raise ValueError("a topology needs at least one rank")
        for rank, place in enumerate(self.places):
            if not isinstance(place, Place):
                raise ValueError(f"rank {rank}: expected a Place, not {place!r}")

    @classmethod
    def grid(cls, nodes: int, local: int) -> Topology:
        """`nodes` nodes of `local` ranks each, node by node; the i-th rank of each node is on rail i."""
        if nodes < 1 or local < 1:
            raise ValueError(f"a grid needs at least one node of one rank, not {nodes} × {local}")
        return cls.from_sizes([local] * nodes)

    @classmethod
    def from_sizes(cls, sizes: Sequence[int]) -> Topology:
        """One node for each size, with that many ranks; the i-th rank of each node is on rail i."""
        if not sizes or min(sizes) < 1:
            raise ValueError(f"every node needs at least one rank, not {list(sizes)}")
        return cls(Place(f"node{k}", i) for k, size in enumerate(sizes) for i in range(size))

    @classmethod
    def from_rails(cls, rails: Sequence[Sequence[int]]) -> Topology:
        """One node for each list; rank by rank the rail it is on: ``from_rails([[0, 1], [2, 3]])``."""
        return cls(Place(f"node{k}", rail, "given") for k, node in enumerate(rails) for rail in node)

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return len(self.places)

    @cached_property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each node, ascending; nodes in order of first appearance."""
        found: dict[str, list[int]] = {}
        for rank, place in enumerate(self.places):
            found.setdefault(place.node, []).append(rank)
        return tuple(tuple(ranks) for ranks in found.values())

    @cached_property
    def node_numbers(self) -> tuple[int, ...]:
        """For each rank the position of its node in `nodes`."""
        numbers = [0] * self.world_size
        for number, ranks in enumerate(self.nodes):
            for rank in ranks:
                numbers[rank] = number
        return tuple(numbers)

    @cached_property
    def rail_numbers(self) -> tuple[int, ...]:
        """For each rank its rail."""
        return tuple(place.rail for place in self.places)

    @cached_property
    def rails(self) -> tuple[int, ...]:
        """The rails that any rank is on, ascending."""
        return tuple(sorted(set(self.rail_numbers)))

    def node_of(self, rank: int) -> int:
        """The position of the rank's node in `nodes`."""
        return self.node_numbers[rank]

    def rail_of(self, rank: int) -> int:
        """The rail that the rank is on."""
        return self.places[rank].rail

    def nics_of(self, node: int) -> int:
        """How many NICs the node at this position uses: ranks of one rail share theirs."""
        widest: dict[int, int] = {}
        for rank in self.nodes[node]:
            rail = self.rail_of(rank)
            widest[rail] = max(widest.get(rail, 0), self.places[rank].nics)
        return sum(widest.values())

    def local_index(self, rank: int) -> int:
        """How many ranks of its node come before the rank."""
        return self.nodes[self.node_of(rank)].index(rank)

    def crosses(self, sender: int, receiver: int) -> bool:
        """Whether a byte from one rank to the other leaves one rail for another."""
        return (
            self.rail_numbers[sender] != self.rail_numbers[receiver]
            and self.node_numbers[sender] != self.node_numbers[receiver]
        )

    def subset(self, ranks: Iterable[int]) -> Topology:
        """The topology of a group: rank i of it is ``ranks[i]`` of this one.

        Raises:
            ValueError: If there are none, one comes twice, or one does not exist.
        """
        chosen = [as_index(rank) for rank in ranks]
        twice = [rank for rank, times in Counter(chosen).items() if times > 1]
        if twice:
            raise ValueError(f"rank {twice[0]} comes twice in the group {chosen}")
        for rank in chosen:
            if not 0 <= rank < self.world_size:
                raise ValueError(f"no rank {rank}: this topology has ranks 0 … {self.world_size - 1}")
        return Topology(self.places[rank] for rank in chosen)

    def digest(self) -> str:
        """16 hexadecimal digits, equal where all ranks are on the same node and rail, with as many NICs; the
        same in every process.
        """
        return stable_digest([[place.node, place.rail, place.nics] for place in self.places])

    def __repr__(self) -> str:
        """Such as ``Topology(2 nodes, 5 ranks: node0[0 1 2] node1[3:rail5 4])``; a rail is said where it is
        not the rank's local index.
        """
        head = f"Topology({counted(len(self.nodes), 'node')}, {counted(self.world_size, 'rank')}"
        if self.world_size > MAX_SPELLED_RANKS:
            sizes = Counter(map(len, self.nodes))
            kinds = " + ".join(f"{times} × {size}" for size, times in sorted(sizes.items(), reverse=True))
            return f"{head}: {kinds} ranks, {counted(len(self.rails), 'rail')})"
        return f"{head}: {' '.join(map(self._spelled, self.nodes))})"

    def _spelled(self, node: tuple[int, ...]) -> str:
        ranks = (
            str(rank) if self.rail_of(rank) == i else f"{rank}:rail{self.rail_of(rank)}"
            for i, rank in enumerate(node)
        )
        return f"{self.places[node[0]].node}[{' '.join(ranks)}]"


def stable_digest(value: object) -> str:
    """16 hexadecimal digits of what JSON can say, the same in every process."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
