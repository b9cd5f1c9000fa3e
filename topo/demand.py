"""Demands: what the phases of an outline ask of groups, reduced to the few that differ in price."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction

from pycomm.topo.cost import Shape
from pycomm.topo.outline import Phase, Team
from pycomm.topo.topology import Topology


@dataclass(frozen=True)
class Demand:
    """What one phase asks of a group.

    Attributes:
        shape: The group as its wires see it.
        blocks: Of one rank: all that is reduced or gathered, or the most that one rank moves.
        share: The largest share, or message, in blocks.
        summed: Whether sums come in, not what one rank contributed.
    """

    shape: Shape
    blocks: Fraction
    share: Fraction
    summed: bool


def demands(topology: Topology, phase: Phase) -> tuple[Demand, ...]:
    """The unlike demands of a phase's groups, in order of first appearance."""
    flows = _flows(topology, phase)
    return tuple(dict.fromkeys(_demand(topology, phase, team, flows) for team in phase.teams))


def _demand(topology: Topology, phase: Phase, team: Team, flows: Fraction) -> Demand:
    size = len(team.ranks)
    shape = Shape(size, _near(topology, phase, team), sum(map(bool, team.shares)), flows)
    if not team.moves:
        return Demand(shape, team.blocks, max(team.shares, default=Fraction(0)), bool(team.summed))
    blocks, messages = _busiest_mover(team)
    each = blocks / (size - 1)  # an exchange among all: its largest message counts as this much
    return Demand(replace(shape, owners=messages), blocks, each, False)


def _near(topology: Topology, phase: Phase, team: Team) -> int:
    """Ranks of the group on each node, where all have as many and blocks of them begin at the root."""
    if phase.level == "local" or len(topology.nodes) == 1:
        return len(team.ranks)
    if phase.level == "rail":
        return 1
    sizes = {len(node) for node in topology.nodes}
    near = sizes.pop()
    return near if not sizes and team.root % near == 0 else 1


def _flows(topology: Topology, phase: Phase) -> Fraction:
    """The most ranks that send through one NIC: those of one node on one rail, by the NICs they have."""
    ranks: dict[tuple[int, int], list[int]] = defaultdict(list)
    for team in phase.teams:
        for rank in team.ranks:
            ranks[topology.node_of(rank), topology.rail_of(rank)].append(topology.places[rank].nics)
    return max(Fraction(len(nics), min(nics)) for nics in ranks.values())


def _busiest_mover(team: Team) -> tuple[Fraction, int]:
    """The most blocks that one rank sends or receives, and the most messages."""
    size = len(team.ranks)
    sent, received = [[Fraction(0)] * size for _ in range(2)]
    sends, receipts = [[0] * size for _ in range(2)]
    for a, b, amount in team.moves:
        sent[a] += amount
        received[b] += amount
        sends[a] += 1
        receipts[b] += 1
    return max(*sent, *received), max(*sends, *receipts)
