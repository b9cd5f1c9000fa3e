"""Bytes moved, by peer and by where the peer is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pycomm._C import Fabric
from pycomm.topo import Topology


class Moved(NamedTuple):
    """What went between this rank and one peer: payload only, by all communicators of the job."""

    sent_bytes: int
    received_bytes: int
    sent_messages: int
    received_messages: int


@dataclass(frozen=True)
class Traffic:
    """What this rank has moved so far.

    Attributes:
        peers: By rank in the communicator; those that nothing was exchanged with are left out.
        local_bytes: Bytes sent to ranks of this node.
        rail_bytes: Bytes sent to other nodes, along this rank's rail.
        cross_rail_bytes: Bytes sent to another rail of another node.
    """

    peers: Mapping[int, Moved]
    local_bytes: int
    rail_bytes: int
    cross_rail_bytes: int


def traffic(fabric: Fabric, topology: Topology, ranks: Sequence[int], rank: int) -> Traffic:
    """The counters of a communicator: `ranks` are its members in the job, `topology` is its own."""
    moved: dict[int, Moved] = {}
    local = rail = cross = 0
    for peer, job_rank in enumerate(ranks):
        if peer == rank or not fabric.connected(job_rank):
            continue
        counted = Moved(*fabric.counters(job_rank))
        if not any(counted):
            continue
        moved[peer] = counted
        if topology.node_of(peer) == topology.node_of(rank):
            local += counted.sent_bytes
        elif topology.crosses(rank, peer):
            cross += counted.sent_bytes
        else:
            rail += counted.sent_bytes
    return Traffic(moved, local, rail, cross)
