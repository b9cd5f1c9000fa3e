"""Algorithms of the user's own: built for every rank, lowered, proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pycomm import _C
from pycomm.errors import InvalidArgument
from pycomm.topo import Topology
from pycomm.topo.leaves import LEAVES
from pycomm.topo.planner import HIERARCHICAL

AUTO = "auto"  # the planner's choice, whatever PYCOMM_ALGORITHM says
TAKEN = {AUTO, HIERARCHICAL}.union(*LEAVES.values())  # names of pycomm's own

Build = Callable[[_C.Program, _C.Group, _C.Span], None]


@dataclass
class OwnAlgorithm:
    """One algorithm for one collective over one topology; see `Communicator.install`."""

    collective: str
    topology: Topology
    build: Build
    chunks: int
    built: dict[int, list[_C.Program]] = field(default_factory=dict)  # by root

    def programs(self, root: int = 0) -> list[_C.Program]:
        """Every rank's program, proved to be the collective.

        Raises:
            ProgramError: they are not; the text names rank, step and the step's text.
            InvalidArgument: the collective has no data to work on in place.
        """
        if root not in self.built:
            self.built[root] = self._make(root)
        return self.built[root]

    def _make(self, root: int) -> list[_C.Program]:
        size = self.topology.world_size
        goal = _C.Goal(self.collective, size, root)
        blocks = goal.data_blocks
        if blocks == 0:
            raise InvalidArgument(
                f"install: {self.collective} moves data between two buffers: it cannot be built in place"
            )
        chunks = self.chunks or (size if blocks == 1 else 1)
        ranks = [(root + position) % size for position in range(size)]
        programs = []
        for rank in range(size):
            program = _C.Program(rank, size)
            program.set_layout("data", blocks, chunks)
            self.build(program, _C.Group(ranks, ranks.index(rank)), _C.Span("data", 0, blocks * chunks))
            programs.append(program)
        programs = _C.lower(programs, goal)
        crossing = self.topology.crosses
        declared = [(a, b) for a in ranks for b in ranks if crossing(a, b)]  # the user's choice: not refused
        _C.verify(
            programs, goal, list(self.topology.node_numbers), list(self.topology.rail_numbers), declared
        )
        return programs
