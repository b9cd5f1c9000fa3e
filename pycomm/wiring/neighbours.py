"""Neighbours: the ranks whose memory this one can map, found by trying.

Ranks of one label and one machine are a *party*. All of it call at its first member, the leader; those that
it lets in are a node, and the others are a party of their own in the next round.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Sequence

from pycomm.admission.deadline import Deadline
from pycomm.errors import PeerLost, ranks_text
from pycomm.log import logger
from pycomm.machine import allow_open_files, kernel_of
from pycomm.wiring import handover
from pycomm.wiring.address_book import Entry, labelled
from pycomm.wiring.mesh import Mesh

NOBODY = -1


class Neighbours:
    """What has been handed over; closes what was not given to the fabric.

    Attributes:
        nodes: The ranks of each node, as far as they are settled; the same on every rank.
    """

    def __init__(self, mesh: Mesh, entries: list[Entry], deadline: Deadline) -> None:
        doors = any(entry.door for entry in entries)  # all have one, or none
        self.nodes: list[list[int]] = [] if doors else sorted(labelled(entries))
        self._mesh = mesh
        self._entries = entries
        self._rank = mesh.identity.rank
        self._deadline = deadline
        self._parties = _parties(entries) if doors else []
        self._leader = NOBODY
        self._line: socket.socket | None = None  # to the leader
        self._handed: dict[int, handover.Handed] = {}

    def __enter__(self) -> Neighbours:
        return self

    def __exit__(self, *_: object) -> None:
        if self._line:
            self._line.close()
        for got in self._handed.values():
            got.close()

    def call(self) -> int:
        """Tries to join this rank's party, if it has joined none; returns the leader of the one that it is
        in, or `NOBODY`.

        Raises:
            Unsupported: this process may not open enough files.
        """
        party = next((party for party in self._parties if self._rank in party), None)
        if party is None or self._leader != NOBODY:
            return self._leader
        allow_open_files(2 * handover.EACH * len(party))
        leader, fabric = party[0], self._mesh.fabric
        mine = handover.own(fabric.segment_fd, fabric.event_fd)
        if leader == self._rank:
            self._leader = leader
            self._handed[leader] = mine
            return leader
        try:
            door = self._entries[leader].door
            self._line = handover.call(self._mesh.identity, leader, door, mine, self._deadline)
            self._leader = leader
        except OSError as error:
            self._say_apart([leader], error.strerror or str(error))
        finally:
            mine.close()
        return self._leader

    def settle(self, leaders: Sequence[int]) -> bool:
        """Takes in what `call` returned on each rank. False while there are ranks for which to call again."""
        left = []
        for party in self._parties:
            node = [rank for rank in party if leaders[rank] == party[0]]
            self.nodes.append(node)
            if rest := [rank for rank in party if rank not in node]:
                left.append(rest)
        self._parties = left
        self.nodes.sort()
        return not left

    def share(self) -> None:
        """Gives the fabric what all others of the node have handed over.

        Raises:
            PeerLost: a neighbour left, or was silent until the deadline.
        """
        node = next(node for node in self.nodes if self._rank in node)
        try:
            if self._line:
                self._handed = handover.receive(self._line, len(node) - 1, self._deadline)
            elif self._leader == self._rank:
                self._say_others()
                self._lead(node[1:])
        except OSError as why:
            whom = f"rank {self._leader}" if self._line else ranks_text(node[1:])
            raise PeerLost(
                f"init: rank {self._rank} of {self._mesh.identity.size} and {whom}, on one node, could not "
                f"hand each other their memory within {self._deadline.text()}: {why}; do all still run?"
            ) from None
        peers = [peer for peer in self._handed if peer != self._rank]
        for peer in peers:
            got = self._handed.pop(peer)
            self._mesh.fabric.add_shm(peer, got.segment_fd, got.event_fd, got.pidfd)
        if peers:
            self._say_copies(peers)

    def _lead(self, others: list[int]) -> None:
        lines: dict[int, socket.socket] = {}
        try:
            for rank in others:
                line = self._mesh.await_caller(handover.PURPOSE, rank, self._deadline)
                if line is None:
                    raise TimeoutError(f"rank {rank} did not call")
                lines[rank] = line
                self._handed[rank] = handover.take(line, self._deadline)
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
            handover.hand_on(lines, self._handed, most, self._deadline)
        finally:
            for line in lines.values():
                line.close()

    def _say_others(self) -> None:
        """That ranks of its label are elsewhere, by the leader of a node."""
        mine = self._entries[self._rank]
        apart: dict[str, list[int]] = {}
        for other in self._entries:
            if other.label == mine.label and other.machine != mine.machine:
                apart.setdefault(_where(mine, other), []).append(other.rank)
        for why, ranks in apart.items():
            if ranks[-1] > self._rank:
                self._say_apart([rank for rank in ranks if rank > self._rank], why)

    def _say_copies(self, peers: list[int]) -> None:
        """Whether large messages that come to this rank are copied once or twice."""
        twice: dict[str, list[int]] = {}
        for peer in peers:
            if why := self._mesh.fabric.why_not_single_copy(peer):
                twice.setdefault(why, []).append(peer)
        if not twice:
            logger.info("rank %d copies large messages of its node straight from the sender", self._rank)
        for why, ranks in twice.items():
            logger.info(
                "rank %d cannot read the memory of %s (%s): their large messages to it are copied twice",
                self._rank,
                ranks_text(sorted(ranks)),
                why,
            )

    def _say_apart(self, ranks: list[int], why: str) -> None:
        logger.info(
            "rank %d shares no memory with %s (%s): separate nodes", self._rank, ranks_text(ranks), why
        )


def _parties(entries: Sequence[Entry]) -> list[list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        found.setdefault((entry.label, entry.machine), []).append(entry.rank)
    return list(found.values())


def _where(mine: Entry, other: Entry) -> str:
    same = kernel_of(mine.machine) == kernel_of(other.machine)
    return "another network namespace" if same else f"another machine, {other.host}"
