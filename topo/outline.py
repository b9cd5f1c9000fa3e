"""Outlines: a collective taken apart into phases, each the work of one leaf algorithm in the groups of a
level.

This is the composition of csrc/algorithms/hierarchical.cc once more, as sizes instead of steps. Amounts are
fractions of a block, the unit of `_C.Goal`: so they are exact, and hold for every count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pycomm.topo.levels import LevelGroups, LevelName, flat, split
from pycomm.topo.rails import RailGroups
from pycomm.topo.topology import Topology

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all")
BY_BLOCK = ("reduce_scatter", "all_gather", "all_to_all")  # one block for every rank

Move = tuple[int, int, Fraction]  # from position, to position, blocks


@dataclass(frozen=True)
class Team:
    """One group in one phase.

    Attributes:
        ranks: Who they are, in the order of the group.
        shares: By position the blocks that it owns. Empty in phases that are nothing but `moves`.
        moves: What goes from where to where, in those.
        root: The position that a rooted phase starts from or ends at.
        summed: The positions that come into the phase with sums, not with a rank's own data.
    """

    ranks: tuple[int, ...]
    shares: tuple[Fraction, ...] = ()
    moves: tuple[Move, ...] = ()
    root: int = 0
    summed: frozenset[int] = frozenset()

    @cached_property
    def blocks(self) -> Fraction:
        """Of one rank, in all."""
        return sum(self.shares, Fraction(0))


@dataclass(frozen=True)
class Phase:
    """What all groups of a level do at one time: `op` names a row of `leaves.LEAVES`."""

    level: LevelName
    op: str
    teams: tuple[Team, ...]


@dataclass(frozen=True)
class Outline:
    """A collective taken apart over some levels.

    Attributes:
        form: "flat"; "shared": every node shares its data out over the rails; or "led": it hands it all to a
            leader.
        levels: The levels.
        phases: One after another.
    """

    form: str
    levels: tuple[LevelGroups, ...]
    phases: tuple[Phase, ...]


def outlines(topology: Topology, rails: RailGroups, collective: str, root: int) -> list[Outline]:
    """Every way to take a collective apart over a topology: flat, and where there are nodes and rails over
    these.
    """
    found = [_flat(topology, collective, root)]
    if can_split(topology):
        builder = _Split(topology, rails, root)
        found.append(Outline("shared", builder.levels, builder.shared(collective)))
        if collective in ("all_reduce", "broadcast", "reduce"):
            found.append(Outline("led", builder.levels, builder.led(collective)))
    return found


def can_split(topology: Topology) -> bool:
    """Whether there are two levels: at least two nodes, one of them with several ranks."""
    return 1 < len(topology.nodes) < topology.world_size


def blocks_of(collective: str, world_size: int) -> int:
    """Blocks of the larger of a rank's two buffers."""
    return world_size if collective in BY_BLOCK else 1


def _flat(topology: Topology, collective: str, root: int) -> Outline:
    levels = flat(topology)
    ranks = levels[0].groups[0]
    n = len(ranks)
    if collective == "all_to_all":
        pairs = tuple((i, j, Fraction(1)) for i in range(n) for j in range(n) if i != j)
        team = Team(ranks, moves=pairs)
    elif collective in BY_BLOCK:
        team = Team(ranks, (Fraction(1),) * n)
    else:
        team = Team(ranks, (Fraction(1, n),) * n, root=ranks.index(root))
    return Outline("flat", levels, (Phase("all", collective, (team,)),))


class _Split:
    """Phases over the nodes and the rail groups.

    An owner carries the blocks of its own slot onward: its share, and what it relays for ranks that own none.
    Those take the owners of their node in turn.
    """

    def __init__(self, topology: Topology, rails: RailGroups, root: int) -> None:
        self.levels = split(topology, rails)
        self.nodes, self.rails = (level.groups for level in self.levels)
        self.shares = rails.shares
        self.root = root
        self.root_node = next(k for k, node in enumerate(self.nodes) if root in node)
        self.slots = [
            [j if j < self.shares else (j - self.shares) % self.shares for j in range(len(node))]
            for node in self.nodes
        ]
        self.behind = [
            Counter(slots) for slots in self.slots
        ]  # by node and slot: ranks whose blocks go that way
        self.root_slot = self.slots[self.root_node][self.nodes[self.root_node].index(root)]

    # -- every node shares its data out ------------------------------------------------------------

    def shared(self, collective: str) -> tuple[Phase, ...]:
        forms: dict[str, Callable[[], list[Phase]]] = {
            "all_reduce": lambda: [
                self._local("reduce_scatter", self._even),
                self._rail("all_reduce", self._even_rail),
                self._local("all_gather", self._even),
            ],
            "reduce_scatter": lambda: [
                self._local("reduce_scatter", self._by_block),
                self._rail("reduce_scatter", self._rail_by_block),
                *self._relays(down=True),
            ],
            "all_gather": lambda: [
                *self._relays(down=False),
                self._rail("all_gather", self._rail_by_block),
                self._local("all_gather", self._by_block),
            ],
            "broadcast": lambda: [
                *self._at_root("scatter"),
                self._rail("broadcast", self._even_rail),
                self._local("all_gather", self._even),
            ],
            "reduce": lambda: [
                self._local("reduce_scatter", self._even),
                self._rail("reduce", self._even_rail),
                *self._at_root("gather"),
            ],
            "all_to_all": lambda: [
                self._exchange_local(),
                self._exchange_rail(),
                *self._relays(down=True, per_block=True),
            ],
        }
        return tuple(forms[collective]())

    def _local(self, op: str, shares: Callable[[int], tuple[Fraction, ...]]) -> Phase:
        return Phase("local", op, tuple(Team(node, shares(k)) for k, node in enumerate(self.nodes)))

    def _rail(self, op: str, shares: Callable[[int], tuple[Fraction, ...]]) -> Phase:
        summed = frozenset(k for k, node in enumerate(self.nodes) if len(node) > 1)
        return Phase(
            "rail",
            op,
            tuple(Team(g, shares(j), (), self.root_node, summed) for j, g in enumerate(self.rails)),
        )

    def _even(self, node: int) -> tuple[Fraction, ...]:
        idle = len(self.nodes[node]) - self.shares
        return (Fraction(1, self.shares),) * self.shares + (Fraction(0),) * idle

    def _even_rail(self, slot: int) -> tuple[Fraction, ...]:
        return (Fraction(1, self.shares * len(self.nodes)),) * len(self.nodes)

    def _by_block(self, node: int) -> tuple[Fraction, ...]:
        idle = len(self.nodes[node]) - self.shares
        owned = tuple(Fraction(sum(behind[j] for behind in self.behind)) for j in range(self.shares))
        return owned + (Fraction(0),) * idle

    def _rail_by_block(self, slot: int) -> tuple[Fraction, ...]:
        return tuple(Fraction(behind[slot]) for behind in self.behind)

    def _relays(self, down: bool, per_block: bool = False) -> list[Phase]:
        """Between owners and the ranks of their node that own no share: one block, or one from everyone
        outside.
        """
        teams = []
        world = sum(map(len, self.nodes))
        for node, slots in zip(self.nodes, self.slots, strict=True):
            blocks = Fraction(world - len(node) if per_block else 1)
            pairs = [(slots[j], j) for j in range(self.shares, len(node))]
            moves = tuple((a, b, blocks) if down else (b, a, blocks) for a, b in pairs)
            if moves:
                teams.append(Team(node, moves=moves))
        return [Phase("local", "relay", tuple(teams))] if teams else []

    def _at_root(self, op: str) -> list[Phase]:
        """Between the root and the owners of its node."""
        node = self.nodes[self.root_node]
        at = node.index(self.root)
        share = Fraction(1, self.shares)
        others = [j for j in range(self.shares) if j != at]
        moves = tuple((at, j, share) if op == "scatter" else (j, at, share) for j in others)
        return [Phase("local", op, (Team(node, moves=moves),))] if moves else []

    def _exchange_local(self) -> Phase:
        """To each owner what goes out by its slot, to every member what is for it."""
        out = Counter[int]()
        for behind in self.behind:
            out.update(behind)
        teams = []
        for node, behind in zip(self.nodes, self.behind, strict=True):
            moves = []
            for i in range(len(node)):
                for j in range(len(node)):
                    onward = out[j] - behind[j] if j < self.shares else 0
                    if i != j:
                        moves.append((i, j, Fraction(1 + onward)))
            teams.append(Team(node, moves=tuple(moves)))
        return Phase("local", "all_to_all", tuple(teams))

    def _exchange_rail(self) -> Phase:
        """From node to node: everything of all ranks there for all ranks here that are behind the slot."""
        count = len(self.nodes)
        teams = []
        for slot, group in enumerate(self.rails):
            moves = tuple(
                (a, b, Fraction(len(self.nodes[a]) * self.behind[b][slot]))
                for a in range(count)
                for b in range(count)
                if a != b
            )
            teams.append(Team(group, moves=moves))
        return Phase("rail", "all_to_all", tuple(teams))

    # -- every node has a leader -------------------------------------------------------------------

    def led(self, collective: str) -> tuple[Phase, ...]:
        slot = 0 if collective == "all_reduce" else self.root_slot
        share = (Fraction(1, len(self.nodes)),) * len(self.nodes)
        summed = frozenset(k for k, node in enumerate(self.nodes) if len(node) > 1)
        rail = Phase("rail", collective, (Team(self.rails[slot], share, (), self.root_node, summed),))
        nodes = tuple(Team(node, (Fraction(1, len(node)),) * len(node), root=slot) for node in self.nodes)
        reduce, broadcast = Phase("local", "reduce", nodes), Phase("local", "broadcast", nodes)
        if collective == "all_reduce":
            return (reduce, rail, broadcast)
        node = self.nodes[self.root_node]
        at = node.index(self.root)
        if at == slot:
            return (rail, broadcast) if collective == "broadcast" else (reduce, rail)
        pair = (at, slot) if collective == "broadcast" else (slot, at)
        relay = Phase("local", "relay", (Team(node, moves=((*pair, Fraction(1)),)),))
        return (relay, rail, broadcast) if collective == "broadcast" else (reduce, rail, relay)
