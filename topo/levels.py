"""Levels: the nested groups that a collective is split into, outermost last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pycomm.topo.rails import RailGroups, rail_groups
from pycomm.topo.topology import Topology

LevelName = Literal["all", "local", "rail"]


@dataclass(frozen=True)
class LevelGroups:
    """One level of a split: disjoint groups of ranks.

    The groups of the first level hold every rank. A rank that is in a group of the next level owns a share of
    its group's data; owners come first in their group, the j-th owners of all groups make up group j of the
    next level.
    """

    name: LevelName
    groups: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """The number of ranks in the largest group."""
        return max(map(len, self.groups))


def flat(topology: Topology) -> tuple[LevelGroups, ...]:
    """One level: all ranks in one group, node by node, so that neighbours are near each other."""
    return (LevelGroups("all", (tuple(rank for node in topology.nodes for rank in node),)),)


def split(topology: Topology, rails: RailGroups | None = None) -> tuple[LevelGroups, ...]:
    """Two levels: the nodes, then the rail groups (of `rail_groups` unless others are given)."""
    groups = (rails or rail_groups(topology)).groups
    share = {rank: j for j, group in enumerate(groups) for rank in group}
    nodes = tuple(
        tuple(sorted(node, key=lambda rank: share.get(rank, len(groups)))) for node in topology.nodes
    )
    return (LevelGroups("local", nodes), LevelGroups("rail", groups))
