"""Candidates: an outline with an algorithm for each level and a number of channels, priced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from pycomm.topo.cost import Payload, Price, Shape, Work, channels_ps, price
from pycomm.topo.leaves import LEAVES
from pycomm.topo.outline import Outline, Phase, Team
from pycomm.topo.profile import Profile
from pycomm.topo.request import Request
from pycomm.topo.topology import Topology
from pycomm.topo.traffic import Traffic, flows

SENDS = "sends"  # what does phases that are no algorithm's choice


@dataclass(frozen=True)
class PhasePrice:
    """One phase of a candidate, priced: the whole of it, all channels one after another.

    Attributes:
        phase: What is done.
        algorithm: How.
        work: What the busiest rank does, in all channels.
        ps: The time, which may be hidden behind other phases.
    """

    phase: Phase
    algorithm: str
    work: Work
    ps: int

    @property
    def predicted_s(self) -> float:
        """The time in seconds."""
        return self.ps / 1e12


@dataclass(frozen=True)
class Candidate:
    """One way to do what is asked.

    Attributes:
        outline: The phases.
        algorithms: For each level its leaf algorithm.
        channels: Parts of the data that are under way independently.
        phases: The phases, priced.
        ps: The predicted time.
    """

    outline: Outline
    algorithms: tuple[str, ...]
    channels: int
    phases: tuple[PhasePrice, ...]
    ps: int

    @property
    def name(self) -> str:
        """Such as "ring" or "hierarchical(direct, ring)": local, rail."""
        if self.outline.form == "flat":
            return self.algorithms[0]
        return f"hierarchical({', '.join(self.algorithms)})"

    @cached_property
    def steps(self) -> tuple[tuple[Phase, str], ...]:
        """Each phase with its algorithm."""
        return tuple((each.phase, each.algorithm) for each in self.phases)

    def crosses(self, topology: Topology) -> bool:
        """Whether anything leaves one rail for another; found without adding up what."""
        return any(
            topology.crosses(team.ranks[a], team.ranks[b])
            for phase, algorithm in self.steps
            for team in phase.teams
            if not _on_one_rail(topology, phase, team)
            for a, b, _, _ in flows(phase.op, algorithm, team)
        )

    def traffic(self, topology: Topology, request: Request) -> Traffic:
        """Who sends how much to whom."""
        return Traffic(topology, self.steps, request.widths, request.count(topology.world_size))


class Pricer:
    """Prices outlines for one request over one topology."""

    def __init__(self, topology: Topology, profile: Profile, request: Request) -> None:
        self.topology = topology
        self.profile = profile
        self.request = request
        self.count = request.count(topology.world_size)

    def candidate(self, outline: Outline, algorithms: tuple[str, ...], channels: int) -> Candidate:
        """Price one way. `algorithms` has one for each level of the outline."""
        by_level = {level.name: name for level, name in zip(outline.levels, algorithms, strict=True)}
        phases, prices = [], []
        for phase in outline.phases:
            algorithm = by_level[phase.level] if SENDS not in LEAVES[phase.op] else SENDS
            work, cost = self._busiest(phase, algorithm, channels)
            busy = cost.near_ps + cost.far_ps
            phases.append(
                PhasePrice(phase, algorithm, _times(work, channels), cost.total_ps + (channels - 1) * busy)
            )
            prices.append(cost)
        return Candidate(outline, algorithms, channels, tuple(phases), channels_ps(prices, channels))

    def _busiest(self, phase: Phase, algorithm: str, channels: int) -> tuple[Work, Price]:
        """Of the groups that are at it at one time, the one that takes longest."""
        formula = LEAVES[phase.op][algorithm]
        found = []
        for shape, blocks, share, summed in sorted(set(self._demands(phase)), key=repr):
            payload = self._payload(blocks / channels, share / channels, summed)
            work = formula(shape, payload)
            found.append((work, price(work, self.profile)))
        return max(found, key=lambda pair: pair[1].total_ps)

    def _payload(self, blocks: Fraction, share: Fraction, summed: bool) -> Payload:
        widths = self.request.widths
        return Payload(
            elements=-(-blocks * self.count // 1),
            share=-(-share * self.count // 1),
            raw=widths.partial if summed else widths.storage,
            partial=widths.partial,
            complete=widths.storage,
            slice_bytes=self.profile.limits.slice_bytes,
        )

    def _demands(self, phase: Phase) -> Iterator[tuple[Shape, Fraction, Fraction, bool]]:
        """For each group its shape, blocks, largest share in blocks, and whether sums come in."""
        flows = _flows(self.topology, phase)
        for team in phase.teams:
            shape = Shape(len(team.ranks), self._near(phase, team), sum(map(bool, team.shares)), flows)
            if not team.moves:
                yield shape, team.blocks, max(team.shares, default=Fraction(0)), bool(team.summed)
                continue
            most, messages = _busiest_mover(team)
            share = most if phase.op in ("scatter", "gather", "relay") else most / max(1, shape.size - 1)
            yield replace(shape, owners=messages), most, share, False

    def _near(self, phase: Phase, team: Team) -> int:
        """Ranks of the group on each node, where all have as many and blocks of them begin at the root."""
        if phase.level == "local" or len(self.topology.nodes) == 1:
            return len(team.ranks)
        if phase.level == "rail":
            return 1
        sizes = {len(node) for node in self.topology.nodes}
        near = sizes.pop()
        return near if not sizes and team.root % near == 0 else 1


def _flows(topology: Topology, phase: Phase) -> int:
    """The most ranks that send through one NIC in a phase: those of one node on one rail."""
    ranks = (rank for team in phase.teams for rank in team.ranks)
    return max(Counter((topology.node_of(rank), topology.rail_of(rank)) for rank in ranks).values())


def _busiest_mover(team: Team) -> tuple[Fraction, int]:
    """The most blocks that one rank sends or receives, and the most messages."""
    blocks, messages = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for a, b, amount in team.moves:
        for side in (("from", a), ("to", b)):
            blocks[side] += amount  # type: ignore[assignment]
            messages[side] += 1
    return Fraction(max(blocks.values(), default=0)), max(messages.values(), default=0)


def _on_one_rail(topology: Topology, phase: Phase, team: Team) -> bool:
    return phase.level == "local" or len({topology.rail_of(rank) for rank in team.ranks}) == 1


def _times(work: Work, channels: int) -> Work:
    total = work
    for _ in range(channels - 1):
        total = total.then(work)
    return total
