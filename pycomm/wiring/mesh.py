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
from pycomm.wiring import probe
from pycomm.wiring.links import Link, Reach, dial, links

LANES = "lanes"  # and the number of the link


class Mesh:
    """How one rank reaches the others. The lower rank of a pair dials, the higher one accepts."""

    def __init__(self, identity: Identity, fabric: Fabric, streams: int) -> None:
        """`streams` is the number of sockets for each NIC and peer."""
        self.identity = identity
        self.fabric = fabric
        self._streams = streams
        self.reaches: list[Reach] = []
        self._came: dict[tuple[str, int], socket.socket] = {}  # through the door, by purpose and rank
        self._changed = threading.Condition()
        self._connecting = threading.Lock()
        self._door: Door | None = None

    def open(self, listeners: list[socket.socket]) -> None:
        """Starts to let others in."""
        self._door = Door(self.identity, listeners, self._admit)

    def know(self, reaches: list[Reach], unwanted: list[socket.socket]) -> None:
        """Learns where everyone can be dialled; stops listening where nobody will dial this rank."""
        self.reaches = reaches
        if self._door is not None and unwanted:
            self._door.leave(unwanted)

    def _admit(self, visitor: Visitor, sock: socket.socket) -> None:
        if visitor.purpose == probe.PURPOSE:
            sock.close()
            return
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
                    self._add(peer, self._dial(peer, deadline))
            missing = []
            for peer in wanted:
                if peer < self.identity.rank:
                    came = self._await(peer, deadline)
                    if came:
                        self._add(peer, came)
                    else:
                        missing.append(peer)
            if missing:
                raise TimedOut(
                    f"rank {self.identity.rank}: {ranks_text(missing)} of {self.identity.size} had not "
                    f"connected "
                    f"after {deadline.text()}; do they make the same calls?"
                )

    def _add(self, peer: int, socks: list[socket.socket]) -> None:
        for sock in socks:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fabric.add_tcp(peer, [sock.detach() for sock in socks])

    def _links(self, peer: int) -> list[Link]:
        """The links to a peer in the order that both sides number them in. Raises PeerLost."""
        mine, theirs = self.reaches[self.identity.rank], self.reaches[peer]
        found = [way for way in links(mine, theirs) for _ in range(self._streams)]
        if not found:
            here = mine.machine == theirs.machine
            raise PeerLost(
                f"rank {self.identity.rank} has no way to rank {peer}: "
                + ("turn loopback on: ip link set lo up" if here else "their NICs share no IP version")
            )
        return found

    def _dial(self, peer: int, deadline: Deadline) -> list[socket.socket]:
        """One socket for each link. Raises PeerLost."""
        made: list[socket.socket] = []
        ways = self._links(peer)
        try:
            for number, way in enumerate(ways):
                made.append(dial(way, deadline))
                knock(made[-1], Dialer(self.identity, f"{LANES} {number}", peer), deadline)
        except OSError as why:
            failed = ways[min(len(made), len(ways) - 1)]
            for sock in made:
                sock.close()
            raise PeerLost(
                f"rank {self.identity.rank} cannot connect to rank {peer} at {failed}: "
                f"{why.strerror or why}; does that rank still run, and does no firewall stand between?"
            ) from None
        return made

    def _await(self, peer: int, deadline: Deadline) -> list[socket.socket]:
        """The sockets of a rank that dials this one; none if it has not dialled them all by the deadline."""
        came: list[socket.socket] = []
        ways = self._links(peer)
        for number in range(len(ways)):
            sock = self.await_caller(f"{LANES} {number}", peer, deadline)
            if sock is None:
                break
            came.append(sock)
        if len(came) == len(ways):
            return came
        for sock in came:
            sock.close()
        return []

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
