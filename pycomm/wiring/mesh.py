"""The mesh: one process's part of a job. Its fabric, its door, and the connections, made when a plan
needs them.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable

from pycomm._C import Fabric
from pycomm.admission.deadline import Deadline
from pycomm.admission.door import Door, knock
from pycomm.admission.handshake import Dialer, Identity, Visitor
from pycomm.errors import PeerLost, TimedOut, ranks_text
from pycomm.wiring import handover

LANES = "lanes"
Address = tuple[str, int]


class Mesh:
    """How one rank reaches the others. The lower rank of a pair dials, the higher one accepts."""

    def __init__(self, identity: Identity, fabric: Fabric) -> None:
        self.identity = identity
        self.fabric = fabric
        self.addresses: list[Address] = []
        self._came: dict[tuple[str, int], socket.socket] = {}  # through the door, by purpose and rank
        self._changed = threading.Condition()
        self._connecting = threading.Lock()
        self._door: Door | None = None

    def open(self, listeners: list[socket.socket]) -> None:
        """Starts to let others in."""
        self._door = Door(self.identity, listeners, self._admit)

    def _admit(self, visitor: Visitor, sock: socket.socket) -> None:
        if visitor.purpose == handover.PURPOSE:
            handover.hand_over(sock, [self.fabric.segment_fd, self.fabric.event_fd])
        with self._changed:
            previous = self._came.pop((visitor.purpose, visitor.rank), None)
            if previous is not None:
                previous.close()
            self._came[visitor.purpose, visitor.rank] = sock
            self._changed.notify_all()

    def await_caller(self, purpose: str, rank: int, deadline: Deadline) -> socket.socket | None:
        """The socket of a rank that dials this one, or None if it has not by the deadline."""
        with self._changed:
            self._changed.wait_for(lambda: (purpose, rank) in self._came, deadline.left_s())
            return self._came.pop((purpose, rank), None)

    def ensure_connected(self, peers: Iterable[int], deadline: Deadline) -> None:
        """Returns when there is an endpoint to each of `peers`, ranks of the job.

        Raises:
            PeerLost: a peer cannot be dialled.
            TimedOut: naming the peers that did not dial.
        """
        with self._connecting:
            wanted = [peer for peer in peers if not self.fabric.connected(peer)]
            for peer in wanted:
                if peer > self.identity.rank:
                    self.fabric.add_tcp(peer, [self._dial(peer, deadline).detach()])
            missing = []
            for peer in wanted:
                if peer < self.identity.rank:
                    sock = self.await_caller(LANES, peer, deadline)
                    if sock is None:
                        missing.append(peer)
                    else:
                        self.fabric.add_tcp(peer, [_prepared(sock).detach()])
            if missing:
                raise TimedOut(
                    f"rank {self.identity.rank}: {ranks_text(missing)} of {self.identity.size} had not "
                    f"connected "
                    f"after {deadline.text()}; do they make the same calls?"
                )

    def _dial(self, peer: int, deadline: Deadline) -> socket.socket:
        address = self.addresses[peer]
        try:
            sock = socket.create_connection(address, deadline.left_s() or 0.001, self._source(address))
            knock(sock, Dialer(self.identity, LANES, peer), deadline)
        except OSError as why:
            raise PeerLost(
                f"rank {self.identity.rank} cannot connect to rank {peer} at {address[0]}:{address[1]}: "
                f"{why}; "
                f"does that rank still run, and does no firewall stand between?"
            ) from None
        return _prepared(sock)

    def _source(self, address: Address) -> Address | None:
        """On loopback the address of our own virtual node, so that traffic between nodes can be told
        apart.
        """
        own = self.addresses[self.identity.rank]
        return (own[0], 0) if address[0].startswith("127.") and own[0].startswith("127.") else None

    def close(self) -> None:
        """Closes the door and whatever came and was not used, and lets go of the fabric. Idempotent."""
        if self._door is not None:
            self._door.close()
            self._door = None
            del self.fabric
        with self._changed:
            for sock in self._came.values():
                sock.close()
            self._came.clear()


def _prepared(sock: socket.socket) -> socket.socket:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
