"""Wiring a job: a few exchanges turn ranks that can merely meet into a mesh on a known topology."""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import dataclass
from typing import Any

from pycomm._C import Fabric
from pycomm._version import __version__
from pycomm.admission.deadline import Deadline
from pycomm.admission.handshake import Identity, derive
from pycomm.bootstrap import Bootstrap
from pycomm.log import logger
from pycomm.machine import cpu_quota, machine_id
from pycomm.nics import interfaces
from pycomm.offer import offer
from pycomm.settings import Settings
from pycomm.topo.topology import Topology
from pycomm.wiring import address_book, handover, neighbours
from pycomm.wiring.address_book import Entry
from pycomm.wiring.links import Reach
from pycomm.wiring.mesh import Mesh
from pycomm.wiring.networks import Networks


@dataclass
class Wired:
    """The outcome.

    Attributes:
        mesh: How this rank reaches the others.
        topology: Where all ranks are.
        processes: For each rank which process it is, for messages.
        crowded: Whether this machine lacks a CPU for each of its ranks.
        nic_bit_per_s: The rate of the slowest NIC that is used; None where none is, or nobody knows.
    """

    mesh: Mesh
    topology: Topology
    processes: list[str]
    crowded: bool
    nic_bit_per_s: int | None


def wire(bootstrap: Bootstrap, settings: Settings, deadline: Deadline) -> Wired:
    """Finds out who is where, hands memory over inside nodes, chooses NICs between machines, and opens this
    rank's door for connections.

    Raises:
        InvalidArgument: PYCOMM_NIC or PYCOMM_TOPO_FILE cannot be followed.
        Mismatch: versions or shared settings differ.
        Error: no network connects the machines.
        TimedOut, PeerLost: a rank went silent or away.
    """
    shares_memory = settings.transport != "tcp"
    name, unix_listener = handover.open_door() if shares_memory else ("", None)
    sockets = [unix_listener] if unix_listener else []
    mesh: Mesh | None = None
    try:
        entries = _introduce(bootstrap, settings, name)
        networks = Networks(entries, bootstrap.rank)
        networks.listen()
        sockets += networks.listeners.all()
        identity = _identity(bootstrap, entries[0].nonce)
        mesh = Mesh(identity, Fabric(bootstrap.rank, bootstrap.size), settings.streams)
        mesh.open(sockets)
        sockets = []  # the door's now
        topology = _meet(bootstrap, mesh, networks, deadline)
    except BaseException:
        for sock in sockets:
            sock.close()
        if mesh is not None:
            mesh.close()
        raise
    logger.info("rank %d of %d: %r%s", bootstrap.rank, bootstrap.size, topology, networks.text())
    processes = [f"pid {entry.pid}" for entry in entries]
    crowded = address_book.crowded(entries, bootstrap.rank)
    return Wired(mesh, topology, processes, crowded, networks.bit_per_s())


def _introduce(bootstrap: Bootstrap, settings: Settings, name: str) -> list[Entry]:
    """The first exchange: the address book."""
    machine = machine_id()
    entry = Entry(
        rank=bootstrap.rank,
        version=__version__,
        label=settings.node or machine,
        machine=machine,
        door=name,
        pid=os.getpid(),
        cpus=sorted(os.sched_getaffinity(0)),
        quota=cpu_quota(),
        rail=settings.rail,
        settings=settings.shared(),
        nonce=secrets.token_hex(16) if bootstrap.rank == 0 else "",
        host=socket.gethostname(),
        offer=offer(settings, interfaces(), bootstrap.address).packed(),
    )
    return address_book.read(bootstrap.exchange(entry.pack(), address_book.merge))


def _identity(bootstrap: Bootstrap, nonce: str) -> Identity:
    """Keys of this mesh alone, so that two jobs, or two inits of one, never mix."""
    return Identity(nonce, bootstrap.rank, bootstrap.size, derive(bootstrap.secret, nonce))


def _meet(bootstrap: Bootstrap, mesh: Mesh, networks: Networks, deadline: Deadline) -> Topology:
    """The other exchanges: whose memory could be mapped, where everyone listens, and, where nobody has named
    NICs, over which of them machines reach each other.
    """
    entries = networks.entries
    with neighbours.Neighbours(mesh, entries, deadline) as near:
        said = {"leader": near.call(), "at": networks.listeners.published()}
        answers = _exchange(bootstrap, said)
        leaders = [answer["leader"] for answer in answers]
        while not near.settle(leaders):
            leaders = _exchange(bootstrap, near.call())
        reaches = [
            Reach.unpack(entry.machine, answer["at"]) for entry, answer in zip(entries, answers, strict=True)
        ]
        networks.choose(bootstrap, mesh.identity, reaches, deadline)
        mesh.know(networks.reaches, networks.unused())
        near.share()
        return Topology(address_book.places(entries, near.nodes, networks.shares))


def _exchange(bootstrap: Bootstrap, said: object) -> list[Any]:
    """What each rank says, by rank."""
    everything = bootstrap.exchange(json.dumps(said).encode(), lambda each: b"[" + b",".join(each) + b"]")
    answers: list[Any] = json.loads(everything)
    return answers
