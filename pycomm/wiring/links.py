"""Links: from which of its NICs a rank dials which address of another, and how sockets are tied to a NIC."""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pycomm.admission.deadline import Deadline
from pycomm.log import logger
from pycomm.nics import family_of
from pycomm.offer import Nic
from pycomm.wiring.choice import Railed, pairs

IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h: the port is chosen when it is known where to, so that none run out

Address = tuple[str, int]


@dataclass(frozen=True)
class Link:
    """One way from this rank to a peer; `device` is "" on loopback."""

    device: str
    source: str
    to: Address

    def __str__(self) -> str:
        over = f" over {self.device}" if self.device else ""
        return f"{self.to[0]}:{self.to[1]}{over}"


@dataclass(frozen=True)
class Reach:
    """Where one rank can be dialled.

    Attributes:
        machine: What it is on: those on the same reach each other over loopback.
        loopback: Its address there, if it has one.
        nics: Its addresses by the name of its NIC.
        share: The NICs that carry its traffic to other machines.
    """

    machine: str
    loopback: Address | None
    nics: Mapping[str, Sequence[Address]]
    share: Sequence[Railed] = ()

    @classmethod
    def unpack(cls, machine: str, said: Mapping[str, Any]) -> Reach:
        """Reads what `Listeners.published` wrote."""
        at = said["loopback"]
        nics = {name: [(str(host), int(port)) for host, port in each] for name, each in said["nics"].items()}
        return cls(machine, None if at is None else (str(at[0]), int(at[1])), nics)


def links(mine: Reach, theirs: Reach) -> list[Link]:
    """All links of one rank to another; both count and order them alike. Empty if there is no way."""
    if mine.machine == theirs.machine:
        if mine.loopback is None or theirs.loopback is None:
            return []
        return [Link("", mine.loopback[0], theirs.loopback)]
    found = (link(own, theirs.nics.get(other.name, ())) for own, other in pairs(mine.share, theirs.share))
    return [each for each in found if each is not None]


def link(own: Nic, addresses: Sequence[Address]) -> Link | None:
    """From a NIC of this machine to the addresses of another's; None if they have no family in common."""
    for source in own.addresses:
        for to in addresses:
            if family_of(source) == family_of(to[0]):
                return Link(own.name, source, to)
    return None


def listen(address: str, device: str) -> socket.socket:
    """A listener at an address of a NIC, bound to it, so that answers leave by it too. Raises OSError."""
    sock = socket.socket(family_of(address), socket.SOCK_STREAM)
    try:
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bind_to_device(sock, device)
        sock.bind((address, 0))
        sock.listen(socket.SOMAXCONN)
    except BaseException:
        sock.close()
        raise
    return sock


def dial(way: Link, deadline: Deadline) -> socket.socket:
    """Connects over one link. Raises OSError."""
    sock = socket.socket(family_of(way.to[0]), socket.SOCK_STREAM)
    try:
        bind_to_device(sock, way.device)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        sock.bind((way.source, 0))
        sock.settimeout(deadline.left_s() or 0.001)
        sock.connect(way.to)
    except BaseException:
        sock.close()
        raise
    return sock


def bind_to_device(sock: socket.socket, device: str) -> bool:
    """Has a socket send and receive by one NIC only, whatever the routes say; "" is no NIC. False where that
    is not allowed: then its address decides.
    """
    if not device:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
    except PermissionError as why:
        _say_unbound(device, str(why.strerror))
        return False
    return True


@functools.cache
def _say_unbound(device: str, why: str) -> None:
    logger.info(
        "sockets cannot be bound to %s (%s): their addresses decide",
        device,
        why,
    )
