"""The communicator: a group of ranks, and the collectives among them."""

from __future__ import annotations

from hashlib import sha256
from operator import index
from types import TracebackType
from typing import Any, SupportsIndex

from numpy import array, array_equal, frombuffer, int64, ndarray, uint8

from pycomm._C import Caller, hot
from pycomm.buffers import as_array, dtype_name, named_dtype
from pycomm.call import NOTHING, Spec
from pycomm.collectives import KINDS, SUM
from pycomm.counters import Traffic, traffic
from pycomm.errors import InvalidArgument, Mismatch
from pycomm.own_algorithm import AUTO, TAKEN, Build, OwnAlgorithm
from pycomm.persistent import PersistentCalls
from pycomm.planning import Algorithm
from pycomm.runner import Runner
from pycomm.topo import Plan
from pycomm.work import Work
from pycomm.world import World

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = KINDS["all_reduce"], KINDS["reduce_scatter"], KINDS["all_gather"]
BROADCAST, REDUCE, ALL_TO_ALL = KINDS["broadcast"], KINDS["reduce"], KINDS["all_to_all"]
BARRIER = KINDS["barrier"]

# The id of a communicator is PARTS times the number that its members agreed on, plus these bits.
LOCAL, RAIL, PARTS = 1, 2, 4


class Communicator(Caller, PersistentCalls):
    """An ordered group of ranks, seen from one of them. Made by `pycomm.init`, `split`, `local` and `rail`.

    Every collective is called by all members, in the same order, with the same arguments but for the
    data. They take NumPy arrays and whatever else has the buffer protocol, in any of the dtypes int8 …
    int64, uint8 … uint64, float16, bfloat16, float32 and float64, and share these options:

        out: Where the result goes; `out=x` works in place. By default a new array is made.
        dtype: What the bytes of a raw buffer (such as a bytearray) are.
        algorithm: A name such as "ring", "hierarchical" or an installed one, {"local": "direct",
            "rail": "ring"}, or "auto"; by default PYCOMM_ALGORITHM, else the planner chooses.
        async_op: Return a `Work` at once; the buffers are in use until its `wait` returns.
        timeout_s: The deadline of this call.

    Each has a sister that ends in `_init` and makes a `Persistent` of it: a call to be made again and again.

    They raise InvalidArgument where the arguments are wrong, before anything is sent; Mismatch where the
    members' calls differ; PeerLost and TimedOut, naming the rank, where one has died or does not come;
    Unsupported.

    Attributes:
        rank: This process's place in the group.
        size: The number of its members.
        ranks: The members, as ranks of the job.
        topology: Where they are.
    """

    def __init__(self, world: World, ranks: tuple[int, ...], id: int, timeout_s: float) -> None:
        self._world = world
        self._id = id
        self._timeout_s = timeout_s
        self.ranks = ranks
        self.rank = ranks.index(world.fabric.rank)
        self.size = len(ranks)
        self._runner = Runner(world, ranks, id, timeout_s)
        self._run = self._runner.run
        self.use(self._runner.hot)
        self.topology = self._runner.planning.topology
        self._parts: dict[int, Communicator] = {}

    @hot
    def all_reduce(
        self,
        x: object,
        op: str = SUM,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        async_op: bool = False,
        timeout_s: float | None = None,
    ) -> Any:
        """Every rank gets the reduction of all ranks' x."""
        a = x if type(x) is ndarray and dtype is None else as_array(x, dtype, "all_reduce")
        key = (ALL_REDUCE, a.dtype, a.shape, op, 0, algorithm)
        return self._run(key, a, a if out is x else out, async_op, timeout_s)

    @hot
    def reduce_scatter(
        self,
        x: object,
        op: str = SUM,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        async_op: bool = False,
        timeout_s: float | None = None,
    ) -> Any:
        """Rank i gets the i-th part, along the first dimension, of the reduction of all ranks' x."""
        a = x if type(x) is ndarray and dtype is None else as_array(x, dtype, "reduce_scatter")
        key = (REDUCE_SCATTER, a.dtype, a.shape, op, 0, algorithm)
        return self._run(key, a, a if out is x else out, async_op, timeout_s)

    @hot
    def all_gather(
        self,
        x: object,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        async_op: bool = False,
        timeout_s: float | None = None,
    ) -> Any:
        """Every rank gets all ranks' x, stacked: the result has the shape (size, *x.shape)."""
        a = x if type(x) is ndarray and dtype is None else as_array(x, dtype, "all_gather")
        key = (ALL_GATHER, a.dtype, a.shape, SUM, 0, algorithm)
        return self._run(key, a, a if out is x else out, async_op, timeout_s)

    @hot
    def all_to_all(
        self,
        x: object,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        async_op: bool = False,
        timeout_s: float | None = None,
    ) -> Any:
        """The i-th part of x, along the first dimension, goes to rank i; its part for us becomes our i-th."""
        a = x if type(x) is ndarray and dtype is None else as_array(x, dtype, "all_to_all")
        key = (ALL_TO_ALL, a.dtype, a.shape, SUM, 0, algorithm)
        return self._run(key, a, a if out is x else out, async_op, timeout_s)

    @hot
    def broadcast(
        self,
        x: object,
        root: int = 0,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        async_op: bool = False,
        timeout_s: float | None = None,
    ) -> Any:
        """Every rank gets the root's x. The others' x says only shape and dtype, unless it is also `out`."""
        a = x if type(x) is ndarray and dtype is None else as_array(x, dtype, "broadcast")
        key = (BROADCAST, a.dtype, a.shape, SUM, root, algorithm)
        return self._run(key, a, a if out is x else out, async_op, timeout_s)

    @hot
    def reduce(
        self,
        x: object,
        root: int = 0,
        op: str = SUM,
        *,
        out: object = None,
        dtype: object = None,
        algorithm: Algorithm = None,
        async_op: bool = False,
        timeout_s: float | None = None,
    ) -> Any:
        """The root gets the reduction of all ranks' x; the others get None, and nothing of theirs is
        written.
        """
        a = x if type(x) is ndarray and dtype is None else as_array(x, dtype, "reduce")
        key = (REDUCE, a.dtype, a.shape, op, root, algorithm)
        return self._run(key, a, a if out is x else out, async_op, timeout_s)

    @hot
    def barrier(self, *, async_op: bool = False, timeout_s: float | None = None) -> Work | None:
        """Returns when every rank has called it."""
        key = (BARRIER, NOTHING.dtype, NOTHING.shape, SUM, 0, AUTO)
        work: Work | None = self._run(key, NOTHING, None, async_op, timeout_s)
        return work if async_op else None

    @property
    def local(self) -> Communicator:
        """The members on this rank's node."""
        return self._part(LOCAL)

    @property
    def rail(self) -> Communicator:
        """The members on this rank's rail, of all nodes."""
        return self._part(RAIL)

    def _part(self, part: int) -> Communicator:
        """A part that needs no agreement: its members and its id follow from the topology and ours."""
        self._runner.check_usable("comm.local" if part == LOCAL else "comm.rail")
        if self._id & part:
            return self
        if part not in self._parts:
            self._parts[part] = self._find_part(part)
        return self._parts[part]

    def _find_part(self, part: int) -> Communicator:
        """`comm.local.rail` and `comm.rail.local` are one: two with one id would share lanes."""
        id = self._id | part
        found = self._world.parts.get(id)
        if found is None:
            places = self.topology.node_numbers if part == LOCAL else self.topology.rail_numbers
            chosen = [r for member, r in enumerate(self.ranks) if places[member] == places[self.rank]]
            found = self._world.parts[id] = Communicator(self._world, tuple(chosen), id, self._timeout_s)
        return found

    def split(self, color: SupportsIndex | None, key: SupportsIndex | None = None) -> Communicator | None:
        """One communicator for each color, of the members that passed it. Called by all members.

        Args:
            color: From 0 on; None: this rank is in none, and gets None.
            key: Members are ordered by key, then by rank here; by default by rank alone.
        """
        mine = [_whole("color", color, -1), _whole("key", key, self.rank)]
        if color is not None and mine[0] < 0:
            raise InvalidArgument(f"split: color={color!r} is not a whole number from 0 on, nor None")
        if not self._world.lock.acquire(blocking=False):  # the ranks could number the two unlike
            raise InvalidArgument("split: another thread is inside comm.split: split in one thread")
        try:
            said = self.all_gather(array([*mine, self._world.next_number], int64), algorithm=AUTO)
            number = int(said[:, 2].max())
            self._world.next_number = number + 1
        finally:
            self._world.lock.release()
        if color is None:
            return None
        chosen = sorted(
            (int(said[member, 1]), member) for member in range(self.size) if said[member, 0] == mine[0]
        )
        ranks = tuple(self.ranks[member] for _, member in chosen)
        return Communicator(self._world, ranks, number * PARTS, self._timeout_s)

    def plan(
        self,
        collective: str,
        count: int,
        dtype: object = "float32",
        op: str = SUM,
        *,
        root: int = 0,
        algorithm: Algorithm = None,
    ) -> Plan:
        """How a collective would be done: printable (`explain()`), with its programs and their proof.

        Args:
            collective: Such as "all_reduce".
            count: Elements of a block: of a rank's data, or of one rank's part of it where data is cut
                into parts.
            dtype: Of the elements.
            op: The reduction, if it reduces.
            root: Of broadcast and reduce.
            algorithm: As in the collectives.
        """
        if collective not in KINDS:
            raise InvalidArgument(f"plan: {collective!r} is no collective: use one of {', '.join(KINDS)}")
        name = dtype_name(named_dtype(dtype, "plan"), "plan")
        return self._runner.planning.plan(Spec(collective, count, name, op, root, algorithm))

    def install(self, name: str, collective: str, build: Build, *, chunks: int = 0) -> None:
        """Makes an algorithm of your own available as `algorithm=name`. Called by all members.

        `build(program, group, data)` is called once for each rank and writes its steps with the verbs
        of `Program`. What comes out is proved first, so that a wrong algorithm is refused with rank,
        step and the step's text.

        Args:
            name: Not one of pycomm's own.
            collective: What it does, such as "all_reduce".
            build: Writes one rank's program: `program`, the `Group` seen from that rank, and `data`,
                the Span of the rank's whole data, in place. Of a rooted collective the group's first
                rank is the root.
            chunks: Into how many chunks a block is cut; by default as many as ranks where there is one
                block, else 1.

        Raises:
            ProgramError: the programs are not the collective.
            Mismatch: other ranks have built other programs.
        """
        if collective not in KINDS or collective == "barrier":
            raise InvalidArgument(f"install: {collective!r} is no collective: use one of {', '.join(KINDS)}")
        if name in TAKEN:
            raise InvalidArgument(f"install: {name!r} is an algorithm of pycomm's own: choose another name")
        own = OwnAlgorithm(collective, self.topology, build, chunks)
        programs = own.programs()
        digest = frombuffer(sha256(b"".join(program.pack() for program in programs)).digest(), uint8)
        everyone = self.all_gather(digest, algorithm=AUTO)
        for member in range(self.size):
            if not array_equal(everyone[member], everyone[0]):
                raise Mismatch(
                    f"install: rank {member} has built another {name!r} than rank 0: use the same code"
                )
        self._runner.planning.install(name, own)
        self._runner.table.clear()

    def counters(self) -> Traffic:
        """Bytes moved so far: by peer, and as sent on this node, along the rail, across rails."""
        self._runner.check_usable("counters")
        return traffic(self._world.fabric, self.topology, self.ranks, self.rank)

    def close(self) -> None:
        """Ends it; the one that `pycomm.init` returned ends all others too. Idempotent."""
        if self._id == 0:
            self._world.close()
        self._runner.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        nodes = len(self.topology.nodes)
        return f"Communicator(rank {self.rank} of {self.size}, {nodes} node{'s' * (nodes > 1)})"


def _whole(what: str, value: SupportsIndex | None, default: int) -> int:
    try:
        number = default if value is None else index(value)
    except TypeError:
        raise InvalidArgument(f"split: {what}={value!r} is not a whole number") from None
    if not -(2**63) <= number < 2**63:
        raise InvalidArgument(f"split: {what}={value!r} does not fit into 64 bits")
    return number
