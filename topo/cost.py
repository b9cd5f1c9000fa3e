"""The cost model: from what the busiest rank does on each kind of wire to a time in picoseconds.

The model is alpha-beta-gamma with the time of its own that a rank spends on a message (the "o" of D. Culler
et al., "LogP: towards a realistic model of parallel computation", PPoPP 1993). What happens inside the nodes
and what happens between them is kept apart, so that channels, which let the one overlap the other, can be
priced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pycomm.topo.profile import MEBI, Profile, Wire

# Measured on rail labs whose switch ports have queues of 10 ms, relative to a ring, where each port has one
# sender. Four hosts at 200 Mbit/s: recursive halving 1.13-1.23; pairwise exchange in several channels, so up
# to three senders, 1.25; everybody at once, from three, 1.4-1.7. Eight at 50 Mbit/s: halving 1.6-1.8.
CONTENTION = Fraction(1, 5)  # for each further sender
MOST_CONTENDING = 2  # further senders


@dataclass(frozen=True)
class Shape:
    """A group as its wires see it.

    Attributes:
        size: Ranks in the group.
        near: Ranks of it on each node, in blocks of neighbours; 1 where the nodes differ, `size` on a single
            node.
        owners: Ranks that own a share of the data; the others only contribute and relay.
        flows: Ranks of one node that send through one NIC at a time; below 1 where a rank has several NICs.
    """

    size: int
    near: int
    owners: int
    flows: Fraction | int = 1

    @property
    def flows_alone(self) -> Fraction | int:
        """The same where only one of the group's ranks on a node sends."""
        return self.flows if self.near == 1 else min(self.flows, 1)

    @property
    def on_one_node(self) -> bool:
        """Whether all of it is inside one node."""
        return self.near >= self.size


@dataclass(frozen=True)
class Payload:
    """The data that a group works on.

    16-bit floats under sum, product and avg are 2 bytes raw and complete but 4 while their sum is incomplete,
    so that the reducing half of an all-reduce moves twice the bytes.

    Attributes:
        elements: Of one rank, all shares together.
        share: Elements of the largest share.
        raw: Bytes of an element as the group finds it: a rank's own, or a sum of the level before.
        partial: Bytes of an element while its sum is incomplete.
        complete: Bytes of an element of the result.
        slice_bytes: What streams through a chain of ranks at a time.
    """

    elements: int
    share: int
    raw: int
    partial: int
    complete: int
    slice_bytes: int


@dataclass(frozen=True)
class Load:
    """What the busiest rank of a group does on one kind of wire.

    Attributes:
        waits: Messages that wait for one another.
        messages: Messages that it handles.
        bytes: Bytes that it sends, or receives if those are more.
        reduced: Bytes that it reduces.
        filled: Bytes that go by before a chain of streaming ranks is busy from end to end.
    """

    waits: int = 0
    messages: int = 0
    bytes: int = 0
    reduced: int = 0
    filled: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(
            self.waits + other.waits,
            self.messages + other.messages,
            self.bytes + other.bytes,
            self.reduced + other.reduced,
            self.filled + other.filled,
        )

    def busy_ps(self, wire: Wire, flows: Fraction | int) -> int:
        """The time in which nothing else can use the wire."""
        moved = self.bytes * flows * wire.beta_ps_per_mebibyte + self.reduced * wire.gamma_ps_per_mebibyte
        return self.messages * wire.message_ps + -(-moved // MEBI)

    def idle_ps(self, wire: Wire, flows: Fraction | int) -> int:
        """The time on the way, in which another channel can use the wire."""
        return self.waits * wire.alpha_ps + -(-self.filled * flows * wire.beta_ps_per_mebibyte // MEBI)


@dataclass(frozen=True)
class Work:
    """What a group does inside the nodes (near) and between them (far).

    Attributes:
        near: Inside.
        far: Between.
        flows: Ranks of one node that send through one NIC at a time.
        senders: Ranks of other nodes that one rank hears from, one after another.
        at_once: Of these, how many at a time.
    """

    near: Load = Load()
    far: Load = Load()
    flows: Fraction | int = 0
    senders: int = 1
    at_once: int = 1

    def then(self, after: Work) -> Work:
        """Both, one after the other, with the same senders."""
        return Work(
            self.near + after.near,
            self.far + after.far,
            max(self.flows, after.flows),
            max(self.senders, after.senders),
            max(self.at_once, after.at_once),
        )

    def contended(self, channels: int) -> Fraction:
        """By what factor bytes between nodes take longer because senders meet at a switch's port.

        Channels are at different steps, so that each may bring another sender. Where several senders share
        the queue of one port, it overflows, and what is lost is sent again (A. Phanishayee et al.,
        "Measurement and analysis of TCP throughput collapse in cluster-based storage systems", FAST 2008).
        """
        meeting = max(self.at_once, min(self.senders, channels))
        return 1 + CONTENTION * min(meeting - 1, MOST_CONTENDING)

    def times(self, channels: int) -> Work:
        """So many of it."""
        total = self
        for _ in range(channels - 1):
            total = total.then(self)
        return total

    @property
    def steps(self) -> int:
        """Messages that wait for one another, on either wire."""
        return self.near.waits + self.far.waits

    @property
    def bytes(self) -> int:
        """Bytes that the busiest rank sends or receives, on both wires."""
        return self.near.bytes + self.far.bytes


@dataclass(frozen=True)
class Price:
    """The time of some work, in picoseconds: when each wire is in use, and when neither is."""

    near_ps: int
    far_ps: int
    idle_ps: int

    @property
    def total_ps(self) -> int:
        """All of it: one thread serves both wires, so they do not overlap."""
        return self.near_ps + self.far_ps + self.idle_ps


def price(work: Work, profile: Profile, channels: int) -> Price:
    """T = waits · alpha + messages · message + bytes · beta + reduced · gamma, summed over both wires;
    between nodes beta is longer where senders meet.
    """
    flows = work.flows * work.contended(channels)
    return Price(
        work.near.busy_ps(profile.local, 1),
        work.far.busy_ps(profile.network, flows),
        work.near.idle_ps(profile.local, 1) + work.far.idle_ps(profile.network, flows),
    )


def channels_ps(prices: Sequence[Price], channels: int) -> int:
    """The time of `channels` equal channels, each of which goes through phases that cost `prices`.

    T = sum of all phases of one channel + (channels - 1) · max over the wires of the time that one channel
    uses it. It is the time of a pipeline: one channel runs through, each further one follows as fast as the
    busier wire lets it. More channels so hide the phases inside the nodes behind those between them, and cost
    messages.
    """
    near = sum(each.near_ps for each in prices)
    far = sum(each.far_ps for each in prices)
    return sum(each.total_ps for each in prices) + (channels - 1) * max(near, far)
