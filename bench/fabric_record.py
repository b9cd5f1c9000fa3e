"""What is known of one library at one size on a rail lab: time against the bound, bytes against the plan."""

from dataclasses import asdict, dataclass, field
from operator import add
from statistics import median

from pycomm.bench.record import Record, Setting, make_record
from pycomm.bench.sizes import format_size
from pycomm.bench.workload import REDUCING, ROOTED, Workload
from pycomm.lab import Counters
from pycomm.topo.bounds import bound
from pycomm.topo.profile import PICOSECONDS, Profile, Wire
from pycomm.topo.request import request
from pycomm.topo.topology import Topology

COLUMNS = "{:>8}  {:<32}{:>10}{:>10}{:>9}{:>15}{:>14}{:>11}"
HEADER = COLUMNS.format(
    "size", "library", "time ms", "bound ms", "x bound", "rails max/min", "spine B/call", "NIC/plan"
)


@dataclass
class Found:
    """What one library's calls of one size came to: seconds of each call by round, wrong values, bytes by NIC
    index and over the spine, and the bytes that one call was planned to send between hosts.
    """

    in_place: bool
    rail_bytes: tuple[int, ...]
    spine_bytes: int = 0
    rounds: list[list[float]] = field(default_factory=list)
    wrong: int = 0
    planned_bytes: int | None = None

    def add(self, seconds: list[float], moved: Counters) -> None:
        """One round."""
        self.rounds.append(seconds)
        self.rail_bytes = tuple(map(add, self.rail_bytes, moved.rail_bytes))
        self.spine_bytes += moved.spine_bytes

    @property
    def calls(self) -> int:
        """How many calls were timed."""
        return sum(map(len, self.rounds))


@dataclass(frozen=True)
class FabricRecord(Record):
    """A record of `iterations` timed calls on a lab.

    `rail_bytes` and `spine_bytes` are what the calls sent, `planned_bytes` what the library said that they
    would send between hosts, None where it says nothing.
    """

    hosts: int
    rails: int
    rate_mbit: float
    spine_mbit: float
    bound_us: float
    spine_bytes: int
    rail_bytes: tuple[int, ...]
    planned_bytes: int | None

    @property
    def times_bound(self) -> float:
        return self.median_us / self.bound_us

    def row(self) -> str:
        """One line of the table."""
        balance = max(self.rail_bytes) / max(1, min(self.rail_bytes))
        plan = f"{sum(self.rail_bytes) / self.planned_bytes:.3f}" if self.planned_bytes else "-"
        return COLUMNS.format(
            format_size(self.bytes),
            self.library,
            f"{self.median_us / 1e3:.1f}",
            f"{self.bound_us / 1e3:.1f}",
            f"{self.times_bound:.2f}",
            f"{balance:.2f}" if balance < 1000 else "one only",
            round(self.spine_bytes / self.iterations),
            plan,
        )


@dataclass(frozen=True)
class Setup:
    """The lab and the placing that all records of a run share."""

    topology: Topology
    rails: int
    rate_mbit: float
    spine_mbit: float

    def bound_s(self, work: Workload) -> float:
        """The least time of a collective where each NIC sends and receives `rate_mbit`, in seconds.

        For an all-reduce over unlike hosts: what hosts allow that are all as narrow as the narrowest,
        2(N-1)/N · M/(K·b) with its K, since a share travels on one rail of all hosts.
        """
        hosts = self.topology.nodes
        topology = self.topology
        if work.collective == "all_reduce":
            topology = Topology.grid(len(hosts), min(map(len, hosts)))
        wire = Wire(alpha=0, message=0, beta=8e-6 / self.rate_mbit, gamma=0)
        op = work.op if work.collective in REDUCING else None
        widths = request(work.collective, work.ranks, work.count, work.dtype.name, op, work.root).widths
        least = bound(topology, Profile(network=wire), work.collective, work.count, widths)
        return least.ps / PICOSECONDS

    def least_bytes(self, work: Workload) -> float:
        """What all NICs together must send in one call, whatever the algorithm; 0 where hosts are not alike.

        The NICs send all the time that the bound allows; a root's broadcast need not reach its own host, nor
        need a reduction leave it.
        """
        hosts = len(self.topology.nodes)
        if len(set(map(len, self.topology.nodes))) > 1:
            return 0.0
        sending = hosts - 1 if work.collective in ROOTED else hosts
        return self.bound_s(work) * self.rate_mbit * 1e6 / 8 * self.rails * sending

    def record(self, work: Workload, title: str, found: Found) -> FabricRecord:
        """The record of a library; rounds have equal weight: the median of their medians counts."""
        setting = Setting(title, "default", len(self.topology.nodes), found.in_place)
        medians = make_record(work, setting, [median(times) for times in found.rounds], found.wrong)
        times = [time for times in found.rounds for time in times]
        together = make_record(work, setting, times, found.wrong)
        known = asdict(medians) | {"p99_us": together.p99_us, "iterations": found.calls}
        return FabricRecord(
            **known,
            hosts=len(self.topology.nodes),
            rails=self.rails,
            rate_mbit=self.rate_mbit,
            spine_mbit=self.spine_mbit,
            bound_us=round(self.bound_s(work) * 1e6, 3),
            spine_bytes=found.spine_bytes,
            rail_bytes=found.rail_bytes,
            planned_bytes=None if found.planned_bytes is None else found.planned_bytes * found.calls,
        )
