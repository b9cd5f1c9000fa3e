"""Where a job's ranks meet when an address is all they know: ports to try, the secret's file, who listens."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import socket
from dataclasses import dataclass
from pathlib import Path

from pycomm.admission import secret
from pycomm.admission.deadline import Deadline
from pycomm.admission.handshake import Identity, Refused
from pycomm.bootstrap.rendezvous import Guest, Host
from pycomm.bootstrap.visit import Visit, pause
from pycomm.errors import Error, InvalidArgument, TimedOut
from pycomm.nics import family_of, interfaces, is_loopback, is_own

FIRST_PORT, PORTS = 12000, 20000  # derived ports: below those that Linux hands out by itself (32768 and on)
CANDIDATES = 8


@dataclass(frozen=True)
class Meeting:
    """What each rank knows before it has met any other."""

    rank: int
    size: int
    host: str  # where rank 0 is
    port: int
    job: str  # tells this job, and this incarnation of it, from others on the same host
    secret_file: Path | None = None
    port_taken: bool = False  # by the launcher's own store
    several_hosts: bool | None = None  # None: nobody said

    def ports(self) -> list[int]:
        """The ports that rank 0 may be at, in the order it tries them. The handshake tells whose a port
        is.
        """
        digest = hashlib.sha256(self.job.encode()).digest()
        words = [int.from_bytes(digest[2 * i : 2 * i + 2], "big") for i in range(CANDIDATES)]
        derived = [FIRST_PORT + word % PORTS for word in words]
        return derived if self.port_taken else [self.port, *derived]

    def join(self, deadline: Deadline) -> Host | Guest:
        """Meets the others.

        Raises:
            TimedOut: naming who had not come.
            InvalidArgument: no secret is to be had, or no port.
        """
        return self._as_host(deadline) if self.rank == 0 else self._as_guest(deadline)

    def _as_host(self, deadline: Deadline) -> Host:
        if self.secret_file is None and self.several_hosts:
            raise self._needs_secret_file()
        path = self.secret_file or secret.job_file(self.job)
        key = secret.create(path) if self.secret_file is None else _read(path)
        try:
            host = Host(Identity(self.job, 0, self.size, key), self._listeners(), deadline)
            try:
                host.wait("" if self.secret_file else " Ranks on other hosts need PYCOMM_SECRET_FILE.")
            except BaseException:
                host.close()
                raise
            return host
        finally:
            if self.secret_file is None:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _as_guest(self, deadline: Deadline) -> Guest:
        if self.secret_file is None and (self.several_hosts or not is_own(_resolve(self.host, self.port))):
            raise self._needs_secret_file()
        path = self.secret_file or secret.job_file(self.job)
        addresses = [(self.host, port) for port in self.ports()]
        visit = Visit(deadline)
        answer = ""  # of somebody, which tells more than that later nobody was there any more
        for attempt in itertools.count():
            try:
                if (
                    not visit.answered
                ):  # each time anew: a dead job may have left a file, until rank 0 replaces it
                    key = secret.read(path, follow=False) if self.secret_file is None else _read(path)
                    identity = Identity(self.job, self.rank, self.size, key)
                return visit.attempt(identity, addresses)
            except Error:
                raise
            except FileNotFoundError:
                note = f"it has not written the secret {path}"
            except Refused as why:
                note = answer = str(why)
            except ConnectionError as why:
                note = answer or str(why)
            if deadline.passed():
                raise TimedOut(
                    f"init: rank 0 of {self.size} had not come to {self.host} after {deadline.text()}; "
                    f"is it running, "
                    f"and is the address its own? Last heard: {note}"
                )
            pause(attempt, deadline)
        raise AssertionError("unreachable")

    def _listeners(self) -> list[socket.socket]:
        """At one port: where the address says, and at the same place over the other IP version, which is what
        the address may be on another host.
        """
        first, *others = self._places()
        for port in self.ports():
            try:
                found = [_listen(first, port)]
            except OSError:
                continue
            for address in others:
                with contextlib.suppress(OSError):
                    found.append(_listen(address, port))
            return found
        tried = ", ".join(map(str, self.ports()))
        raise InvalidArgument(
            f"init: rank 0 can listen at none of the ports {tried} of {self.host}: choose another MASTER_PORT"
        )

    def _places(self) -> list[str]:
        """The addresses to listen at; 0.0.0.0 and :: where a hosts file calls this host loopback, or an
        address that it has not got.
        """
        address = _resolve(self.host, self.port)
        named = address in (self.host, "127.0.0.1", "::1") or self.several_hosts is False
        if not is_own(address) or (is_loopback(address) and not named):
            return ["::", "0.0.0.0"] if ":" in address else ["0.0.0.0", "::"]
        if is_loopback(address):
            return [address, "127.0.0.1" if ":" in address else "::1"]
        together = next((each.reachable_at for each in interfaces() if address in each.addresses), ())
        return [address, *(other for other in together if other and (":" in other) != (":" in address))]

    def _needs_secret_file(self) -> InvalidArgument:
        return InvalidArgument(
            f"init: the ranks are on several hosts (rank 0 at {self.host}), so they need a secret to "
            f"know each other "
            f"by: set PYCOMM_SECRET_FILE on each to a file with the same content and mode 0600 "
            f"(openssl rand -hex 32 > secret)"
        )


def _read(path: Path) -> bytes:
    try:
        return secret.read(path)
    except FileNotFoundError:
        raise InvalidArgument(f"PYCOMM_SECRET_FILE={path}: there is no such file on this host") from None


def _listen(address: str, port: int) -> socket.socket:
    return socket.create_server((address, port), family=family_of(address), backlog=socket.SOMAXCONN)


def _resolve(host: str, port: int) -> str:
    _refuse_number(host)
    try:
        return str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as why:
        raise InvalidArgument(
            f"init: the address {host!r} of rank 0 is unknown here: {why.strerror}"
        ) from None


def _refuse_number(host: str) -> None:
    """A host that is called 1042 is not at 0.0.4.18, which is how resolvers read it (inet_aton(3))."""
    with contextlib.suppress(OSError):
        read = socket.inet_ntoa(socket.inet_aton(host))
        if read != host:
            raise InvalidArgument(
                f"init: the address {host!r} of rank 0 is a number, which is read as {read}: give the IP "
                f"address of its host"
            )
