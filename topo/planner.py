"""The planner: enumerates the ways to do a collective, prices them, and takes the cheapest that the policy
allows.

Pure and deterministic: prices are integers, ties go by name, and a request holds only what every rank knows.
So all ranks come to the same plan without talking.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import product

from pycomm.topo.candidate import SENDS, Candidate, Pricer, Survey, unlike
from pycomm.topo.leaves import LEAVES
from pycomm.topo.outline import Outline, can_split, outlines
from pycomm.topo.plan import Choice, Plan
from pycomm.topo.profile import Profile
from pycomm.topo.rails import RailGroups, rail_groups
from pycomm.topo.request import Algorithm, Request, algorithm_key, request
from pycomm.topo.topology import Topology
from pycomm.topo.traffic import Traffic

POLICIES = ("rail_first", "cheapest", "strict")
CHANNELS = (1, 2, 4, 8)
LEAST_CHANNEL_BYTES = 64 * 1024  # of a channel: in smaller ones messages cost more than overlap gives
HIERARCHICAL = "hierarchical"
LEVELS = ("local", "rail")


class CrossesRails(ValueError):
    """Policy strict: every plan for the request sends bytes from one rail to another."""


class Planner:
    """Plans the collectives of one group. Plans are kept, so that the same request gives the same object.
    Thread-safe: ranks that are threads of one process share a planner, and each plan is made once.
    """

    def __init__(
        self, topology: Topology, profile: Profile | None = None, policy: str = "rail_first"
    ) -> None:
        """Plan over a topology with the costs of a profile.

        Args:
            topology: The group's.
            profile: The machine's; the defaults if none is given.
            policy: "rail_first": over two or more nodes only plans that send no byte across rails are looked
                at while there is one, else those that send the fewest. "cheapest": all. "strict": as
                rail_first, but `CrossesRails` is raised where no plan stays on its rails.

        Raises:
            ValueError: For an unknown policy.
        """
        if policy not in POLICIES:
            raise ValueError(f"unknown policy {policy!r}; known are {', '.join(POLICIES)}")
        self.topology = topology
        self.profile = profile or Profile()
        self.policy = policy
        self.rails: RailGroups = rail_groups(topology)
        self._plans: dict[Request, Plan] = {}
        self._making = threading.Lock()
        self._surveyed: dict[tuple[str, int], list[Survey]] = {}  # by collective and root

    def plan(
        self,
        collective: str,
        *,
        count: int,
        dtype: str,
        reduction: str | None = None,
        root: int = 0,
        algorithm: str | Mapping[str, str] | None = None,
    ) -> Plan:
        """The plan for a collective.

        Args:
            collective: all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all or barrier.
            count: Elements of a block, as `_C.Goal` has it: of a rank's data; of one rank's part of it for
                reduce_scatter, all_gather and all_to_all.
            dtype: NumPy's name, or "bfloat16".
            reduction: sum, product, min, max or avg, where the collective reduces.
            root: Of broadcast and reduce.
            algorithm: A leaf over all ranks ("ring"), "hierarchical", or {"local": "direct", "rail": "ring"},
                of which one may be left out. The planner's choice if not given.

        Raises:
            ValueError: For an unknown name or an algorithm that cannot be; it lists what can.
            CrossesRails: By policy strict.
        """
        wanted = request(collective, self.topology.world_size, count, dtype, reduction, root)
        wanted = replace(wanted, algorithm=algorithm_key(algorithm))
        with self._making:
            if wanted not in self._plans:
                self._plans[wanted] = self._make(wanted)
            return self._plans[wanted]

    def _make(self, wanted: Request) -> Plan:
        found = self._candidates(wanted)
        preferred, why = chosen, _ = self._choose(found, replace(wanted, algorithm=None))
        if wanted.algorithm is not None:
            chosen, why = self._choose(self._asked(wanted, found), wanted)
            why = f"asked for; {why}"
        choice = Choice(chosen, preferred, tuple(found), self.policy, why)
        return Plan(self.topology, self.profile, wanted, choice)

    # -- what there is ---------------------------------------------------------------------------------

    def _candidates(self, wanted: Request) -> list[Candidate]:
        """Every outline with every algorithm that it can have on each level and every number of channels."""
        pricer = Pricer(self.profile, wanted, wanted.count(self.topology.world_size))
        cuts = [c for c in CHANNELS if c == 1 or wanted.bucket_bytes // c >= LEAST_CHANNEL_BYTES]
        found = [
            pricer.candidate(survey, algorithms, channels)
            for survey in self._surveys(wanted)
            for algorithms in product(
                *(names_for(survey.outline, level.name) for level in survey.outline.levels)
            )
            if obstacle(survey.outline, algorithms) is None
            for channels in cuts
        ]
        return sorted(found, key=lambda each: (each.ps, each.name, each.channels))

    def _surveys(self, wanted: Request) -> list[Survey]:
        key = wanted.moves, wanted.root
        if key not in self._surveyed:
            found = outlines(self.topology, self.rails, *key)
            self._surveyed[key] = [Survey(self.topology, outline) for outline in found]
        return self._surveyed[key]

    def _asked(self, wanted: Request, found: list[Candidate]) -> list[Candidate]:
        """Those of the candidates that the caller's `algorithm` means.

        Raises:
            ValueError: If there are none; it says why and what there is.
        """
        algorithm = wanted.algorithm
        fits = [each for each in found if _means(algorithm, each)]
        if fits:
            return fits
        names = list(dict.fromkeys(each.name for each in found if each.outline.form == "flat"))
        raise ValueError(self._why_not(wanted, sorted(names)))

    def _why_not(self, wanted: Request, flat_names: list[str]) -> str:
        algorithm, moves = wanted.algorithm, wanted.moves
        there_is = f"algorithms of {moves} here: {', '.join(flat_names)}"
        if can_split(self.topology):
            there_is += f', {HIERARCHICAL}, or a dict such as {{"local": "direct", "rail": "ring"}}'
        if isinstance(algorithm, str) and algorithm in LEAVES[moves]:
            return f"{obstacle(self._surveys(wanted)[0].outline, (algorithm,))}; {there_is}"
        if isinstance(algorithm, str) and algorithm != HIERARCHICAL:
            return f"{moves} has no algorithm {algorithm!r}; {there_is}"
        if not can_split(self.topology):
            needs = "need two nodes, one of them with two ranks"
            return f"{HIERARCHICAL} plans {needs}, not {self.topology}; {there_is}"
        assert isinstance(algorithm, tuple)  # "hierarchical" always fits where there are two levels
        return f"{self._why_not_levels(dict(algorithm), wanted)}; {there_is}"

    def _why_not_levels(self, asked: dict[str, str], wanted: Request) -> str:
        every = [survey.outline for survey in self._surveys(wanted)[1:]]
        names = {
            level: sorted({name for outline in every for name in names_for(outline, level)})
            for level in LEVELS
        }
        for level, name in asked.items():
            if level not in names:
                return f"no level {level!r}: levels are {' and '.join(LEVELS)}"
            if name not in names[level]:
                has = ", ".join(names[level])
                return f"level {level!r} of {wanted.moves} has no algorithm {name!r}: it has {has}"
        full = [tuple(asked.get(level, names[level][-1]) for level in LEVELS)]
        reasons = (obstacle(outline, algorithms) for outline in every for algorithms in full)
        return next(reason for reason in reasons if reason)

    # -- which it is -----------------------------------------------------------------------------------

    def _choose(self, allowed: list[Candidate], wanted: Request) -> tuple[Candidate, str]:
        """The cheapest that the policy allows, and why. `allowed` is in order of price."""
        if len(self.topology.nodes) == 1:
            return allowed[0], "one node: no traffic enters the network"
        if self.policy == "cheapest":
            return allowed[0], "policy cheapest: rails are not looked at"
        staying = [each for each in allowed if not each.crosses]
        if staying:
            return staying[0], "the cheapest plan that sends nothing across rails"
        why = self._why_none_stays()
        if self.policy == "strict":
            what = wanted.moves if wanted.algorithm is None else f"{wanted.moves} by {wanted.algorithm}"
            raise CrossesRails(f"policy strict: every plan of {what} sends bytes across rails: {why}")
        sent = {each.name: _crossing_bytes(each.traffic(wanted)) for each in unlike(allowed)}
        least = min(sent.values())
        return next(each for each in allowed if sent[each.name] == least), (
            f"no plan stays on its rails ({why}): the cheapest of those that cross least"
        )

    def _why_none_stays(self) -> str:
        return "it is flat" if self.rails.stays_on_rails else "no rail is on every node"


def names_for(outline: Outline, level: str) -> list[str]:
    """The algorithms that can do all that an outline wants of a level."""
    if outline.form == "led" and level == "local":
        return ["tree"]
    wanted = [LEAVES[phase.op] for phase in outline.phases if phase.level == level]
    wanted = [leaves for leaves in wanted if SENDS not in leaves]
    return [name for name in wanted[0] if all(name in leaves for leaves in wanted)]


def obstacle(outline: Outline, algorithms: tuple[str, ...]) -> str | None:
    """Why an outline cannot be done with an algorithm for each level, or None if it can."""
    for level, algorithm in zip(outline.levels, algorithms, strict=True):
        if algorithm not in names_for(outline, level.name):
            return f"{algorithm} cannot do what level {level.name!r} has to"
        ops = {phase.op for phase in outline.phases if phase.level == level.name}
        odd = [len(group) for group in level.groups if len(group) & (len(group) - 1)]
        if algorithm == "halving" and odd and ops & {"reduce_scatter", "all_gather"}:
            where = f"a group of level {level.name!r} has {odd[0]} ranks"
            return f"halving needs a power of two as a scatter leaf; {where}"
    return None


def _crossing_bytes(traffic: Traffic) -> Fraction:
    return traffic.across(traffic.bytes)


def _means(algorithm: Algorithm, candidate: Candidate) -> bool:
    if isinstance(algorithm, str):
        return algorithm == (candidate.name if candidate.outline.form == "flat" else HIERARCHICAL)
    if algorithm is None or candidate.outline.form == "flat":
        return algorithm is None
    has = dict(zip(LEVELS, candidate.algorithms, strict=True))
    return all(has.get(level) == name for level, name in algorithm)
