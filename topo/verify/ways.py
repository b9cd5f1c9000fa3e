"""Ways: everything that the planner could choose to do over a shape, as recipes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from pycomm import _C
from pycomm.topo.outline import COLLECTIVES, outlines
from pycomm.topo.planner import names_for
from pycomm.topo.rails import rail_groups
from pycomm.topo.topology import Topology
from pycomm.topo.verify.shapes import Shape

CHANNELS = (1, 2)
MAX_RANKS_ONE_CHANNEL = 32  # in larger groups always two, either of which is what one alone would be
ROOTED = ("broadcast", "reduce")
MAX_RANKS_EVERY_ROOT = 6  # in larger groups not every rank is tried as the root,
MAX_RANKS_TWO_ROOTS = 16  # but the first and the last; then the last, which on uneven nodes owns no share


@dataclass(frozen=True)
class Way:
    """One collective over one shape, with an algorithm for each level.

    Attributes:
        shape: Where the ranks are, and their groups.
        goal: The collective and its root.
        algorithms: For each level its leaf.
        channels: Parts of the data that are under way independently.
    """

    shape: Shape
    goal: _C.Goal
    algorithms: tuple[str, ...]
    channels: int

    @property
    def name(self) -> str:
        """Such as "2 × 4: broadcast at 0 by direct, ring, 2 channels"."""
        root = f" at {self.goal.root}" if self.goal.collective in ROOTED else ""
        channels = f"{self.channels} channel{'s' if self.channels > 1 else ''}"
        return f"{self.shape.name}: {self.goal.collective}{root} by {', '.join(self.algorithms)}, {channels}"

    @property
    def recipe(self) -> _C.Recipe:
        """As the builder of programs reads it."""
        by_level = zip(self.shape.levels, self.algorithms, strict=True)
        return _C.Recipe(self.goal, [_C.Level(level.groups, name) for level, name in by_level], self.channels)

    @property
    def may_be_refused(self) -> bool:
        """Whether it wants halving among a number of ranks that is no power of two."""
        return any(
            odd and name == "halving"
            for odd, name in zip(self.shape.has_odd_group, self.algorithms, strict=True)
        )

    def prove(self) -> _C.Traffic:
        """Build every rank's program and run them on symbols.

        Raises:
            _C.ProgramError: They are not the collective.
            ValueError: The recipe is refused.
        """
        topology = self.shape.topology
        return _C.prove(self.recipe, topology.node_numbers, topology.rail_numbers, self.shape.declared)


def ways(shape: Shape, collectives: Sequence[str] = COLLECTIVES) -> Iterator[Way]:
    """Every way to do each of the collectives over a shape."""
    ranks = shape.topology.world_size
    for collective in collectives:
        for root in _roots(collective, ranks):
            goal = _C.Goal(collective, ranks, root)
            for algorithms in _algorithms(collective, len(shape.levels)):
                for channels in CHANNELS if ranks <= MAX_RANKS_ONE_CHANNEL else CHANNELS[-1:]:
                    yield Way(shape, goal, algorithms, channels)


def _roots(collective: str, ranks: int) -> Sequence[int]:
    if collective not in ROOTED:
        return (0,)
    if ranks <= MAX_RANKS_EVERY_ROOT:
        return range(ranks)
    return (0, ranks - 1) if ranks <= MAX_RANKS_TWO_ROOTS else (ranks - 1,)


@cache
def _algorithms(collective: str, depth: int) -> tuple[tuple[str, ...], ...]:
    """What the planner picks from, for each level. The levels inside a node are all like its local one."""
    grid = Topology.grid(2, 2)
    found: list[tuple[str, ...]] = []
    for outline in outlines(grid, rail_groups(grid), collective, 0):
        names = [names_for(outline, level.name) for level in outline.levels]
        if len(names) > 1:
            names = names[:1] * (depth - 1) + names[1:]
        if len(names) == depth:
            found += product(*names)
    return tuple(dict.fromkeys(found))
