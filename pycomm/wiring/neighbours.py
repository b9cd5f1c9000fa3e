"""Neighbours: the ranks whose memory this one can map, found by trying."""

from __future__ import annotations

from collections.abc import Sequence

from pycomm.admission.deadline import Deadline
from pycomm.errors import TimedOut, ranks_text
from pycomm.log import logger
from pycomm.machine import kernel_of
from pycomm.topo.topology import Topology
from pycomm.wiring import handover
from pycomm.wiring.address_book import Entry
from pycomm.wiring.mesh import Mesh


class Neighbours:
    """What has been handed over; closes what was not given to the fabric."""

    def __init__(self, mesh: Mesh, entries: Sequence[Entry], deadline: Deadline) -> None:
        self._mesh = mesh
        self._entries = entries
        self._rank = mesh.identity.rank
        self._deadline = deadline
        self._handed: dict[int, handover.Handed] = {}

    def __enter__(self) -> Neighbours:
        return self

    def __exit__(self, *_: object) -> None:
        for got in self._handed.values():
            got.close()

    def hand_over(self, group: Sequence[int]) -> list[int]:
        """Tries it with the higher ranks of `group`; returns those that it worked with."""
        own = [self._mesh.fabric.segment_fd, self._mesh.fabric.event_fd]
        mine = self._entries[self._rank]
        apart: dict[str, list[int]] = {}
        for peer in group:
            other = self._entries[peer]
            if peer <= self._rank or not mine.door or not other.door:
                continue
            if other.machine != mine.machine:
                apart.setdefault(_where(mine, other), []).append(peer)
                continue
            try:
                name = other.door
                self._handed[peer] = handover.exchange(self._mesh.identity, peer, name, own, self._deadline)
            except OSError as error:
                apart.setdefault(error.strerror or str(error), []).append(peer)
        for why, ranks in apart.items():
            logger.info(
                "rank %d shares no memory with %s (%s): separate nodes", self._rank, ranks_text(ranks), why
            )
        return sorted(self._handed)

    def take(self, mapped: set[tuple[int, int]]) -> None:
        """Receives from the lower ranks; `mapped` has all (lower, higher) pairs that it worked for.

        Raises:
            TimedOut: one had said so and did not come.
        """
        for low, high in sorted(mapped):
            if high != self._rank:
                continue
            sock = self._mesh.await_caller(handover.PURPOSE, low, self._deadline)
            if sock is None:
                raise TimedOut(
                    f"init: rank {low} of {self._mesh.identity.size} handed over no memory after "
                    f"{self._deadline.text()}"
                )
            with sock:
                self._handed[low] = handover.take(sock, self._deadline)

    def join(self, topology: Topology) -> None:
        """Gives the fabric those that are on this rank's node."""
        here = topology.node_of(self._rank)
        for peer in [peer for peer in self._handed if topology.node_of(peer) == here]:
            got = self._handed.pop(peer)
            self._mesh.fabric.add_shm(peer, got.segment_fd, got.event_fd, got.pidfd)


def _where(mine: Entry, other: Entry) -> str:
    same = kernel_of(mine.machine) == kernel_of(other.machine)
    return "another network namespace" if same else f"another machine, {other.host}"
