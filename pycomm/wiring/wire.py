"""Wiring a job: two exchanges turn ranks that can merely meet into a mesh on a known topology."""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import dataclass

from pycomm._C import Fabric
from pycomm._version import __version__
from pycomm.admission.deadline import Deadline
from pycomm.admission.handshake import Identity, derive
from pycomm.bootstrap import Bootstrap
from pycomm.errors import Error, TimedOut
from pycomm.log import logger
from pycomm.machine import cpu_quota, machine_id
from pycomm.nics import is_loopback, outward_address
from pycomm.settings import Settings
from pycomm.topo.topology import Place, Topology
from pycomm.wiring import address_book, handover
from pycomm.wiring.address_book import Entry
from pycomm.wiring.mesh import Mesh

OCTET = 254  # usable values in a field of 127.x.y.z


@dataclass
class Wired:
    """The outcome. `processes` says for each rank which process it is, for messages; `crowded`, whether this
    machine lacks a CPU for each of its ranks.
    """

    mesh: Mesh
    topology: Topology
    processes: list[str]
    crowded: bool


def wire(bootstrap: Bootstrap, settings: Settings, deadline: Deadline) -> Wired:
    """Finds out who is where, hands memory over inside nodes, opens this rank's door for connections.

    Raises:
        Mismatch: versions or shared settings differ.
        TimedOut, PeerLost: a rank went silent or away.
    """
    shares_memory = settings.transport != "tcp"
    name, unix_listener = handover.open_door() if shares_memory else ("", None)
    listeners = [unix_listener] if unix_listener else []
    mesh: Mesh | None = None
    try:
        entries = _introduce(bootstrap, settings, name)
        address_book.check_agreed(entries)
        groups = address_book.labelled(entries)
        listener = _listen(entries, groups, bootstrap)
        listeners.append(listener)
        at = listener.getsockname()[:2]
        identity = _identity(bootstrap, entries[0].nonce)
        mesh = Mesh(identity, Fabric(bootstrap.rank, bootstrap.size))
        mesh.open(listeners)
        listeners = []  # the door's now
        topology = _meet_neighbours(bootstrap, mesh, (entries, groups, at), deadline)
    except BaseException:
        for sock in listeners:
            sock.close()
        if mesh is not None:
            mesh.close()
        raise
    logger.info("rank %d of %d: %r", bootstrap.rank, bootstrap.size, topology)
    processes = [f"pid {entry.pid}" for entry in entries]
    return Wired(mesh, topology, processes, address_book.crowded(entries, bootstrap.rank))


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
    )
    return [address_book.unpack(payload) for payload in bootstrap.all_gather(entry.pack())]


def _identity(bootstrap: Bootstrap, nonce: str) -> Identity:
    """Keys of this mesh alone, so that two jobs, or two inits of one, never mix."""
    return Identity(nonce, bootstrap.rank, bootstrap.size, derive(bootstrap.secret, nonce))


def _listen(entries: list[Entry], groups: list[list[int]], bootstrap: Bootstrap) -> socket.socket:
    """Where this rank's connections come in: 127.0.(rail+1).(node+1) on one machine, else the outward
    address.
    """
    rank = bootstrap.rank
    if len({entry.machine for entry in entries}) == 1:
        node = next(number for number, group in enumerate(groups) if rank in group)
        rail = entries[rank].rail
        rail = groups[node].index(rank) if rail is None else rail
        address = f"127.0.{rail % OCTET + 1}.{node % OCTET + 1}"
    else:
        address = bootstrap.address or outward_address()
        if is_loopback(address):
            raise Error(
                f"init: rank {rank} is on {socket.gethostname()}, other ranks are on other machines, and "
                f"it has "
                f"no address but loopback ({address}): they could not reach it. Give the machine a route "
                f"to the others"
            )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=socket.SOMAXCONN)


def _meet_neighbours(
    bootstrap: Bootstrap,
    mesh: Mesh,
    book: tuple[list[Entry], list[list[int]], tuple[str, int]],
    deadline: Deadline,
) -> Topology:
    """The second exchange: whose memory could be mapped, and where everyone listens."""
    entries, groups, at = book
    rank = bootstrap.rank
    group = next(group for group in groups if rank in group)
    own = [mesh.fabric.segment_fd, mesh.fabric.event_fd]
    handed: dict[int, handover.Handed] = {}
    try:
        for peer in group:
            if peer > rank and entries[peer].door:
                got = handover.exchange(mesh.identity, peer, entries[peer].door, own, deadline)
                if got is not None:
                    handed[peer] = got
        said = bootstrap.all_gather(json.dumps({"mapped": sorted(handed), "at": at}).encode())
        answers = [json.loads(payload) for payload in said]
        mesh.addresses = [(str(answer["at"][0]), int(answer["at"][1])) for answer in answers]
        mapped = {(low, high) for low, answer in enumerate(answers) for high in answer["mapped"]}
        for low, high in sorted(mapped):
            if high == rank:
                handed[low] = _take(mesh, low, deadline)
        shared = entries[rank].door != ""
        node_list = address_book.nodes(groups, mapped) if shared else sorted(groups)
        places: list[Place] = address_book.places(entries, node_list)
        for peer in [peer for peer in handed if places[peer].node == places[rank].node]:
            got = handed.pop(peer)
            mesh.fabric.add_shm(peer, got.segment_fd, got.event_fd, got.pidfd)
    finally:
        for got in handed.values():
            got.close()
    return Topology(places)


def _take(mesh: Mesh, peer: int, deadline: Deadline) -> handover.Handed:
    sock = mesh.await_caller(handover.PURPOSE, peer, deadline)
    if sock is None:
        raise TimedOut(
            f"init: rank {peer} of {mesh.identity.size} handed over no memory after {deadline.text()}"
        )
    with sock:
        return handover.take(sock, deadline)
