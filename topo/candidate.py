"""Candidates: an outline with an algorithm for each level and a number of channels, priced."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pycomm.topo.cost import Payload, Price, Work, channels_ps, price
from pycomm.topo.demand import Demand, demands
from pycomm.topo.leaves import LEAVES
from pycomm.topo.outline import Outline, Phase
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


class Survey:
    """An outline and what each of its phases demands, which is the same for every size and algorithm."""

    def __init__(self, topology: Topology, outline: Outline) -> None:
        self.topology = topology
        self.outline = outline
        self.demands = tuple(demands(topology, phase) for phase in outline.phases)
        self._crossing: dict[tuple[str, ...], bool] = {}

    def crosses(self, algorithms: tuple[str, ...], steps: tuple[tuple[Phase, str], ...]) -> bool:
        """Whether anything leaves one rail for another, with an algorithm for each level."""
        if algorithms not in self._crossing:
            self._crossing[algorithms] = any(self._phase_crosses(*step) for step in steps)
        return self._crossing[algorithms]

    def _phase_crosses(self, phase: Phase, algorithm: str) -> bool:
        return phase.level != "local" and any(
            self.topology.crosses(team.ranks[a], team.ranks[b])
            for team in phase.teams
            if len({self.topology.rail_of(rank) for rank in team.ranks}) > 1
            for a, b, _, _ in flows(phase.op, algorithm, team)
        )


@dataclass(frozen=True)
class Candidate:
    """One way to do what is asked.

    Attributes:
        survey: The outline, with what it demands.
        algorithms: For each level its leaf algorithm.
        channels: Parts of the data that are under way independently.
        phases: The phases, priced.
        ps: The predicted time.
    """

    survey: Survey
    algorithms: tuple[str, ...]
    channels: int
    phases: tuple[PhasePrice, ...]
    ps: int

    @property
    def outline(self) -> Outline:
        """The phases."""
        return self.survey.outline

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

    @property
    def crosses(self) -> bool:
        """Whether anything leaves one rail for another; found without adding up what."""
        return self.survey.crosses(self.algorithms, self.steps)

    def traffic(self, request: Request) -> Traffic:
        """Who sends how much to whom."""
        topology = self.survey.topology
        return Traffic(topology, self.steps, request.widths, request.count(topology.world_size))


def unlike(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The first candidate of each name: those of one name send the same, in more or fewer pieces."""
    found: dict[str, Candidate] = {}
    for each in candidates:
        found.setdefault(each.name, each)
    return list(found.values())


class Pricer:
    """Prices the outlines of one request; `surveys` has what their phases demand."""

    def __init__(self, profile: Profile, request: Request, count: int) -> None:
        """A block has `count` elements."""
        self.profile = profile
        self.request = request
        self.count = count
        self._priced: dict[tuple[int, int, str, int], tuple[Work, Price]] = {}

    def candidate(self, survey: Survey, algorithms: tuple[str, ...], channels: int) -> Candidate:
        """Price one way. `algorithms` has one for each level of the outline."""
        levels = survey.outline.levels
        by_level = {level.name: name for level, name in zip(levels, algorithms, strict=True)}
        phases, prices = [], []
        for i, phase in enumerate(survey.outline.phases):
            algorithm = SENDS if SENDS in LEAVES[phase.op] else by_level[phase.level]
            work, cost = self._busiest(survey, i, algorithm, channels)
            ps = cost.idle_ps + channels * (cost.near_ps + cost.far_ps)
            phases.append(PhasePrice(phase, algorithm, work.times(channels), ps))
            prices.append(cost)
        return Candidate(survey, algorithms, channels, tuple(phases), channels_ps(prices, channels))

    def _busiest(self, survey: Survey, index: int, algorithm: str, channels: int) -> tuple[Work, Price]:
        """Of the groups that are at a phase at one time, the one that takes longest; one channel's part."""
        key = (id(survey), index, algorithm, channels)
        if key not in self._priced:
            formula = LEAVES[survey.outline.phases[index].op][algorithm]
            works = [formula(each.shape, self._payload(each, channels)) for each in survey.demands[index]]
            priced = [(work, price(work, self.profile, channels)) for work in works]
            self._priced[key] = max(priced, key=lambda pair: pair[1].total_ps)
        return self._priced[key]

    def _payload(self, demand: Demand, channels: int) -> Payload:
        widths = self.request.widths
        return Payload(
            elements=math.ceil(demand.blocks * self.count / channels),
            share=math.ceil(demand.share * self.count / channels),
            raw=widths.partial if demand.summed else widths.storage,
            partial=widths.partial,
            complete=widths.storage,
            slice_bytes=self.profile.limits.slice_bytes,
        )
