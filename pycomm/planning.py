"""From a request to something bound: the plan, the connections it needs, its program with count, dtype,
reduction.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, TypeAlias

from pycomm._C import Bound, Goal, Request
from pycomm.admission.deadline import Deadline
from pycomm.call import Spec
from pycomm.collectives import KINDS
from pycomm.errors import InvalidArgument
from pycomm.log import TRACE, logger
from pycomm.own_algorithm import AUTO, OwnAlgorithm
from pycomm.topo import Plan, Planner, Profile, Topology
from pycomm.world import World

Algorithm: TypeAlias = str | Mapping[str, str] | None

_planners: weakref.WeakValueDictionary[tuple[Topology, str, str], Planner] = weakref.WeakValueDictionary()
_finding = threading.Lock()


class Planning:
    """Plans and binds the calls of one communicator."""

    def __init__(self, world: World, ranks: tuple[int, ...]) -> None:
        self.topology = world.topology.subset(ranks)
        self.timeout_s = world.settings.timeout_s
        self._world = world
        self._ranks = ranks
        self._rank = ranks.index(world.fabric.rank)
        self._planner = _planner(self.topology, world.profile, world.settings.policy)
        self._own: dict[tuple[str, str], OwnAlgorithm] = {}  # by collective and name

    def plan(self, spec: Spec) -> Plan:
        """The plan for a request. Raises InvalidArgument where there is none; the text lists what can be."""
        algorithm = self._named(spec.algorithm)
        reduction = spec.reduction if KINDS[spec.collective].reduces else None
        try:
            return self._planner.plan(
                spec.collective,
                count=spec.elements,
                dtype=spec.dtype,
                reduction=reduction,
                root=spec.root,
                algorithm=algorithm,
            )
        except ValueError as why:
            raise InvalidArgument(f"{spec.collective}: {why}") from None

    def bind(self, spec: Spec) -> tuple[Bound, Request]:
        """What the core runs for a request. Connects to the peers that its program names."""
        name = str(self._named(spec.algorithm))
        own = self._own.get((spec.collective, name))
        if own is None:
            plan = self.plan(spec)
            programs, name = plan.programs, f"{plan.algorithm} {plan.channels}"
        else:
            programs = own.programs(spec.root)
        program = programs[self._rank]
        peers = [self._ranks[peer] for peer in program.peers]
        self._world.connections.ensure_connected(peers, Deadline(self.timeout_s))
        logger.log(TRACE, "rank %d of %r: %s", self._rank, self.topology, spec)
        moves = "all_reduce" if spec.collective == "barrier" else spec.collective
        goal = Goal(moves, len(self._ranks), spec.root)
        bound = Bound(program, goal, spec.elements, spec.dtype, spec.reduction)
        digest = int.from_bytes(sha256(name.encode()).digest()[:8], "little")
        return bound, Request(spec.collective, spec.reduction, spec.dtype, spec.elements, spec.root, digest)

    def install(self, name: str, own: OwnAlgorithm) -> None:
        """Keeps an algorithm of the user's."""
        self._own[own.collective, name] = own

    def _named(self, algorithm: Any) -> Algorithm:
        if algorithm is None:
            algorithm = self._world.settings.algorithm
        if isinstance(algorithm, tuple):
            return dict(algorithm)
        return None if algorithm == AUTO else algorithm


def _planner(topology: Topology, profile: Profile, policy: str) -> Planner:
    """The process's one planner for these: it is pure, and what it has planned serves all that ask alike."""
    key = (topology, profile.digest(), policy)
    with _finding:
        found = _planners.get(key)
        if found is None:
            found = _planners[key] = Planner(topology, profile, policy)
        return found
