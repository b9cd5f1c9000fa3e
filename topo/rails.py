"""Rails: which ranks carry the traffic between nodes, so that as little as possible crosses a rail."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from pycomm.topo.topology import Topology


@dataclass(frozen=True)
class RailGroups:
    """The shares of a split collective, and who owns them.

    Attributes:
        topology: The ranks that are grouped.
        groups: Group j takes the owner of share j on each node, in the order of the nodes.
        rails: The rail that each group stays on, or None for a group that cannot.
    """

    topology: Topology
    groups: tuple[tuple[int, ...], ...]
    rails: tuple[int | None, ...]

    @property
    def shares(self) -> int:
        """Into how many shares each node cuts the data."""
        return len(self.groups)

    @cached_property
    def relays(self) -> tuple[int, ...]:
        """The ranks that own no share: what they have and want is relayed by an owner of their node."""
        owners = {rank for group in self.groups for rank in group}
        return tuple(rank for rank in range(self.topology.world_size) if rank not in owners)

    @property
    def stays_on_rails(self) -> bool:
        """Whether traffic inside the groups never crosses a rail."""
        return None not in self.rails

    @cached_property
    def crossing(self) -> frozenset[tuple[int, int]]:
        """Every (sender, receiver) inside a group that is on two rails. A plan declares those of them that it
        uses.
        """
        return frozenset(
            (a, b)
            for group in self.groups
            for a in group
            for b in group
            if a != b and self.topology.crosses(a, b)
        )


def rail_groups(topology: Topology) -> RailGroups:
    """Lay the shares on the rails that every node has.

    A rail that carries k ranks of each node (two GPUs on one NIC) carries k groups; where the nodes differ, k
    is the least. If no rail is on every node, the number of shares is the least number of ranks on a node,
    the j-th is owned by each node's j-th rank, and what crosses a rail has to be declared.
    """
    present = [Counter(topology.rail_of(rank) for rank in node) for node in topology.nodes]
    everywhere = present[0]
    for rails in present[1:]:
        everywhere = everywhere & rails  # the lesser count of each rail
    if not everywhere:
        return _by_position(topology)
    wanted = [(rail, k) for rail, count in sorted(everywhere.items()) for k in range(count)]
    by_rail = [_ranks_by_rail(topology, node) for node in topology.nodes]
    groups = tuple(tuple(ranks[rail][k] for ranks in by_rail) for rail, k in wanted)
    return RailGroups(topology, groups, tuple(rail for rail, _ in wanted))


def _ranks_by_rail(topology: Topology, node: tuple[int, ...]) -> dict[int, list[int]]:
    ranks: dict[int, list[int]] = {}
    for rank in node:
        ranks.setdefault(topology.rail_of(rank), []).append(rank)
    return ranks


def _by_position(topology: Topology) -> RailGroups:
    shares = min(map(len, topology.nodes))
    groups = tuple(tuple(node[j] for node in topology.nodes) for j in range(shares))
    rails: list[int | None] = []
    for group in groups:
        used = {topology.rail_of(rank) for rank in group}
        rails.append(used.pop() if len(used) == 1 else None)
    return RailGroups(topology, groups, tuple(rails))
