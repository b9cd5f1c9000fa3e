"""One rank's part of a job: what all its communicators share."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import getpid
from typing import TYPE_CHECKING, Protocol

from pycomm._C import Fabric
from pycomm.admission.deadline import Deadline
from pycomm.settings import Settings
from pycomm.topo import Profile, Topology

if TYPE_CHECKING:
    from pycomm.communicator import Communicator


class Closing(Protocol):
    """What ends with the world."""

    def close(self) -> None:
        """Idempotent."""


class Connections(Closing, Protocol):
    """How connections come about."""

    def ensure_connected(self, peers: Iterable[int], deadline: Deadline) -> None:
        """Returns when each of `peers` can be sent to."""


@dataclass(eq=False)
class World:
    """The job as one rank sees it.

    Attributes:
        fabric: The transports of this rank.
        topology: Where all ranks are.
        processes: By rank, such as "pid 812": for messages.
        crowded: Whether this machine lacks a CPU for each of its ranks, which then must not spin.
        settings: Of this process.
        connections: How to reach ranks that are not connected yet.
        nic_bit_per_s: The rate of the slowest NIC in use, the same on every rank; None where nobody knows.
        profile: The costs that plans are made with, PYCOMM_PROFILE or the defaults; the same on every rank.
        next_number: Communicators are numbered; each takes a number that its members agree on.
        pid: The process that all this belongs to; a forked child must not touch it.
        lock: Held while a communicator is split.
        members: The working parts of the communicators.
        parts: By id the communicators that were made as a part of another.
    """

    fabric: Fabric
    topology: Topology
    processes: Sequence[str]
    crowded: bool
    settings: Settings
    connections: Connections
    nic_bit_per_s: int | None = None
    profile: Profile = field(init=False)
    next_number: int = 1
    pid: int = field(default_factory=getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    members: weakref.WeakSet[Closing] = field(default_factory=weakref.WeakSet)
    parts: weakref.WeakValueDictionary[int, Communicator] = field(default_factory=weakref.WeakValueDictionary)

    def __post_init__(self) -> None:
        """Sets how this rank waits: it spins only where every rank of the machine has a CPU of its own."""
        self.profile = (self.settings.profile or Profile()).limited_to(self.nic_bit_per_s)
        limits = self.profile.limits
        spin_s = 0.0 if self.crowded else limits.spin_s
        weakref.finalize(self, _abandon, self.connections, self.pid)
        self.fabric.set_waiting(*(round(seconds * 1e9) for seconds in (spin_s, limits.yield_s, limits.nap_s)))
        self.fabric.set_single_copy(limits.single_copy_bytes)

    def labels(self, ranks: Sequence[int]) -> list[str]:
        """How messages call the members of a communicator, such as "rank 5 (node1, pid 812)"."""
        found = []
        for member, rank in enumerate(ranks):
            job = "" if member == rank else f"rank {rank} of the job, "
            found.append(f"rank {member} ({job}{self.topology.places[rank].node}, {self.processes[rank]})")
        return found

    def close(self) -> None:
        """Closes all communicators and the door, and lets go of the fabric, descriptors and threads too.
        Idempotent.
        """
        if getpid() != self.pid:  # a forked child: all this is its parent's
            return
        for member in list(self.members):
            member.close()
        self.connections.close()
        if hasattr(self, "fabric"):
            del self.fabric


def _abandon(connections: Connections, pid: int) -> None:
    """For a world that nobody closed, when the last communicator is gone or the process ends."""
    if getpid() == pid:
        connections.close()
