"""Joining through MPI: the communicator carries where rank 0 is and the secret; the rest is the rendezvous.

mpi4py is never imported: whatever has its methods will do. All messages are buffers; nothing is pickled.
"""

from __future__ import annotations

import itertools
import json
import secrets
import socket
from typing import Protocol

from pycomm.admission.deadline import Deadline
from pycomm.admission.handshake import Identity
from pycomm.admission.secret import SECRET_BYTES
from pycomm.bootstrap.bootstrap import Alone, Bootstrap
from pycomm.bootstrap.rendezvous import Guest, Host
from pycomm.bootstrap.visit import Visit, pause
from pycomm.errors import Error, InvalidArgument, PeerLost, TimedOut
from pycomm.machine import machine_id
from pycomm.nics import family_of, outward_addresses

MESSAGE_BYTES = 512
MOST_ADDRESSES = 5  # so that they fit, IPv6 and all
LOOPBACK = "127.0.0.1"


class Request(Protocol):
    """An MPI request under way."""

    def Test(self) -> bool:  # noqa: N802 (MPI's name)
        """True when it is done."""


class MpiCommunicator(Protocol):
    """What is used of mpi4py's communicators."""

    def Get_rank(self) -> int: ...  # noqa: N802, D102 (MPI's names)

    def Get_size(self) -> int: ...  # noqa: N802, D102

    def Is_inter(self) -> bool: ...  # noqa: N802, D102

    def Iscatterv(  # noqa: N802, D102
        self, sendbuf: tuple[bytearray, list[int]] | None, recvbuf: bytearray, root: int = 0
    ) -> Request: ...


# MPI cannot cancel a collective: the buffers of those that were given up must live as long as the process.
_given_up: list[tuple[object, ...]] = []


def from_mpi(comm: MpiCommunicator, deadline: Deadline) -> Bootstrap:
    """Joins the job whose ranks are those of `comm`, in its order.

    Raises:
        InvalidArgument: `comm` is no MPI communicator, or one between two groups.
        TimedOut: naming the ranks that had not come.
    """
    if not all(hasattr(comm, name) for name in ("Get_rank", "Get_size", "Is_inter", "Iscatterv")):
        raise InvalidArgument(
            f"init: {type(comm).__name__} is not an mpi4py communicator, such as MPI.COMM_WORLD"
        )
    if comm.Is_inter():
        raise InvalidArgument(
            "init: an MPI intercommunicator has two groups: pass one of them, or Merge() it"
        )
    rank, size = comm.Get_rank(), comm.Get_size()
    if size == 1:
        return Alone()
    return _host(comm, size, deadline) if rank == 0 else _guest(comm, rank, size, deadline)


def _host(comm: MpiCommunicator, size: int, deadline: Deadline) -> Host:
    identity = Identity(secrets.token_hex(16), 0, size, secrets.token_hex(SECRET_BYTES).encode())
    addresses = [LOOPBACK, *outward_addresses()[:MOST_ADDRESSES]]
    listeners = [
        socket.create_server((address, 0), family=family_of(address), backlog=socket.SOMAXCONN)
        for address in addresses
    ]
    where = [listener.getsockname()[:2] for listener in listeners]
    message = {"job": identity.job, "secret": identity.secret.decode(), "machine": machine_id(), "at": where}
    host = Host(identity, listeners, deadline)
    try:
        _from_rank_0(comm, json.dumps(message).encode().ljust(MESSAGE_BYTES), deadline)
        host.wait()
    except BaseException:
        host.close()
        raise
    return host


def _guest(comm: MpiCommunicator, rank: int, size: int, deadline: Deadline) -> Guest:
    message = json.loads(_from_rank_0(comm, None, deadline))
    identity = Identity(message["job"], rank, size, message["secret"].encode())
    same_machine = message["machine"] == machine_id()
    addresses = [(host, port) for host, port in message["at"] if same_machine or host != LOOPBACK]
    visit = Visit(deadline)
    for attempt in itertools.count():
        try:
            return visit.attempt(identity, addresses)
        except Error:
            raise
        except ConnectionError as why:
            if deadline.passed():
                raise PeerLost(f"init: rank {rank} cannot reach rank 0: {why}") from None
        pause(attempt, deadline)
    raise AssertionError("unreachable")


def _from_rank_0(comm: MpiCommunicator, message: bytes | None, deadline: Deadline) -> bytearray:
    """What rank 0 has to say, by a scatter: a broadcast goes through other ranks, and one that has not
    come would keep it from others. Started and polled, for a blocking call has no deadline.
    """
    size = comm.Get_size()
    outgoing = (bytearray(message * size), [MESSAGE_BYTES] * size) if message else None
    incoming = bytearray(MESSAGE_BYTES)
    request = comm.Iscatterv(outgoing, incoming, root=0)
    for attempt in itertools.count():
        if request.Test():
            return incoming
        if deadline.passed():
            _given_up.append((request, outgoing, incoming))
            if message:  # it is under way; who has not taken it in has not come
                return incoming
            raise TimedOut(f"init: rank 0 of the MPI communicator had not come after {deadline.text()}")
        pause(attempt, deadline)
    raise AssertionError("unreachable")
