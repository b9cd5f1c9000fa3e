"""Plans: the chosen way to do a collective, its programs, their proof, and why it was chosen."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property

from pycomm import _C
from pycomm.topo.bounds import Bound, bound
from pycomm.topo.candidate import Candidate, PhasePrice
from pycomm.topo.explain import explain
from pycomm.topo.outline import blocks_of
from pycomm.topo.profile import PICOSECONDS, Limits, Profile
from pycomm.topo.request import Request
from pycomm.topo.topology import Topology
from pycomm.topo.traffic import Traffic
from pycomm.topo.units import counted

MAX_PROVED_RANKS = 64  # larger plans are built without a proof of their own


@dataclass(frozen=True)
class Choice:
    """What the planner decided.

    Attributes:
        chosen: The candidate.
        preferred: The one that would have been chosen had the caller asked for none.
        candidates: All there were, cheapest first, whether the policy or the caller wanted them or not.
        policy: By which it was chosen.
        why: In words.
    """

    chosen: Candidate
    preferred: Candidate
    candidates: tuple[Candidate, ...]
    policy: str
    why: str


class Plan:
    """One collective over one topology: what is done, predicted, proved. Immutable; programs are built when
    asked for.

    Attributes:
        topology: The group's.
        profile: By which it was priced.
        request: What it is for: a collective, a class of types, a bucket of sizes.
        choice: The candidate and its rivals.
    """

    def __init__(self, topology: Topology, profile: Profile, request: Request, choice: Choice) -> None:
        self.topology = topology
        self.profile = profile
        self.request = request
        self.choice = choice
        self._building = threading.Lock()
        self._outcome: tuple[list[_C.Program], _C.Traffic | None] | None = None

    @property
    def collective(self) -> str:
        """What it does, such as "all_reduce"."""
        return self.request.collective

    @property
    def algorithm(self) -> str:
        """How, such as "ring" or "hierarchical(direct, ring)": inside the nodes, along the rails."""
        return self.choice.chosen.name

    @property
    def channels(self) -> int:
        """Parts of the data that are under way independently."""
        return self.choice.chosen.channels

    @property
    def phases(self) -> tuple[PhasePrice, ...]:
        """What is done one after another, with predicted times."""
        return self.choice.chosen.phases

    @property
    def predicted_s(self) -> float:
        """The time that the cost model predicts at `request.bucket_bytes`, in seconds."""
        return self.choice.chosen.ps / PICOSECONDS

    @property
    def limits(self) -> Limits:
        """What the executor runs it with."""
        return self.profile.limits

    @cached_property
    def bound(self) -> Bound:
        """The least time that anything could take, and what sets it."""
        n = self.topology.world_size
        elements = self.request.count(n) * blocks_of(self.request.moves, n)
        return bound(self.topology, self.profile, self.request.moves, elements, self.request.widths)

    @property
    def bound_s(self) -> float:
        """The least time that anything could take, in seconds."""
        return self.bound.ps / PICOSECONDS

    @cached_property
    def traffic(self) -> Traffic:
        """Who sends how much to whom, by the algorithms' definitions; the proof counts the same in the
        programs.
        """
        return self.choice.chosen.traffic(self.request)

    @property
    def declared(self) -> tuple[tuple[int, int], ...]:
        """The (sender, receiver) pairs that cross rails, and may: none in a plan that keeps to its rails."""
        return self.traffic.crossing

    @cached_property
    def recipe(self) -> _C.Recipe:
        """The plan as the builder of programs reads it."""
        chosen = self.choice.chosen
        goal = _C.Goal(self.request.moves, self.topology.world_size, self.request.root)
        levels = [
            _C.Level([list(group) for group in level.groups], algorithm)
            for level, algorithm in zip(chosen.outline.levels, chosen.algorithms, strict=True)
        ]
        return _C.Recipe(goal, levels, chosen.channels)

    @property
    def programs(self) -> list[_C.Program]:
        """Every rank's program, proved if there are at most 64 ranks.

        Raises:
            ProgramError: If one is wrong, or sends a byte across rails that the plan did not declare.
        """
        return self._built()[0]

    @property
    def proof(self) -> _C.Traffic | None:
        """What the proof counted in the programs; None for plans of more than 64 ranks, which are not proved
        each.
        """
        return self._built()[1]

    def program(self, rank: int) -> _C.Program:
        """One rank's program."""
        return self.programs[rank]

    def peers(self, rank: int) -> list[int]:
        """The ranks that a rank exchanges messages with, ascending."""
        return list(self.program(rank).peers)

    def explain(self) -> str:
        """The plan for people: what is done, how long it takes, what it sends where, why it was chosen."""
        return explain(self)

    def _built(self) -> tuple[list[_C.Program], _C.Traffic | None]:
        with self._building:  # ranks that are threads ask for it at the same time
            if self._outcome is None:
                self._outcome = self._build()
            return self._outcome

    def _build(self) -> tuple[list[_C.Program], _C.Traffic | None]:
        programs = _C.build(self.recipe)
        if self.topology.world_size > MAX_PROVED_RANKS:
            return programs, None
        nodes, rails = list(self.topology.node_numbers), list(self.topology.rail_numbers)
        goal = _C.Goal(self.request.moves, self.topology.world_size, self.request.root)
        return programs, _C.verify(programs, goal, nodes, rails, list(self.declared))

    def __repr__(self) -> str:
        cut, ranks = counted(self.channels, "channel"), counted(self.topology.world_size, "rank")
        return f"Plan({self.collective}, {self.algorithm}, {cut}, {ranks})"
