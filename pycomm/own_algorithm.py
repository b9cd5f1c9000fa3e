"""An algorithm of the user's own: built for every rank, lowered, proved."""

from __future__ import annotations

from collections.abc import Callable

from pycomm import _C
from pycomm.errors import InvalidArgument
from pycomm.topo import Topology
from pycomm.topo.leaves import LEAVES
from pycomm.topo.planner import HIERARCHICAL

AUTO = "auto"  # the planner's choice, whatever PYCOMM_ALGORITHM says
TAKEN = {AUTO, HIERARCHICAL}.union(*LEAVES.values())  # names of pycomm's own

Build = Callable[[_C.Program, _C.Group, _C.Span], None]


def build_programs(goal: _C.Goal, topology: Topology, build: Build, chunks: int) -> list[_C.Program]:
    """Every rank's program, proved to be the collective.

    Raises:
        ProgramError: they are not; the text names rank, step and the step's text.
        InvalidArgument: the collective has no data to work on in place.
    """
    blocks = goal.data_blocks
    if blocks == 0:
        raise InvalidArgument(
            f"install: {goal.collective} moves data between two buffers: it cannot be built in place"
        )
    size = topology.world_size
    cuts = chunks or (size if blocks == 1 else 1)
    ranks = list(range(size))
    programs = []
    for rank in ranks:
        program = _C.Program(rank, size)
        program.set_layout("data", blocks, cuts)
        build(program, _C.Group(ranks, rank), _C.Span("data", 0, blocks * cuts))
        programs.append(program)
    programs = _C.lower(programs, goal)
    every_pair = [
        (a, b) for a in ranks for b in ranks if topology.crosses(a, b)
    ]  # the user's choice, so not refused
    _C.verify(programs, goal, list(topology.node_numbers), list(topology.rail_numbers), every_pair)
    return programs
