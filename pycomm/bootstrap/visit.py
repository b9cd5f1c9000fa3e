"""A guest's way into the rendezvous: it calls at rank 0's door and sits where it is told to."""

from __future__ import annotations

import json
import secrets
import socket
import time

from pycomm.admission import frames
from pycomm.admission.deadline import Deadline
from pycomm.admission.door import knock
from pycomm.admission.handshake import Dialer, Identity, Refused
from pycomm.bootstrap.rendezvous import PURPOSE, Guest, left, own_address, raise_if_error
from pycomm.bootstrap.seats import FLAT, Address
from pycomm.errors import Error

DIAL_S = 1.0  # for one attempt at one address of rank 0; each round of them has more patience
MOST_DIAL_S = 4.0
PARENT_DIAL_S = 5.0  # at a rank of which rank 0 says that it listens


class Visit:
    """The attempts of one rank to join."""

    def __init__(self, deadline: Deadline) -> None:
        self._token = secrets.token_hex(8)  # the same in each attempt: it is one rank, not two
        self._deadline = deadline
        self._dial_s = DIAL_S
        self.answered: Address | None = None  # where rank 0 was once reached

    def attempt(self, identity: Identity, addresses: list[Address]) -> Guest:
        """One attempt at each address.

        Raises:
            ConnectionError: nobody answered; Refused where somebody else did. Try again.
            InvalidArgument, Mismatch, PeerLost, TimedOut: what rank 0 says, or that it is gone.
        """
        failure: ConnectionError | None = None
        tried = [self.answered] if self.answered else addresses
        for address in tried:
            try:
                sock = _connect(address, self._deadline.within(self._dial_s))
            except ConnectionRefusedError:
                if self.answered:  # it shuts its door only when all have come, or when it fails
                    raise left(0, identity.size) from None
                continue
            except OSError:
                continue
            try:
                return self._call(identity, address, sock)
            except Error:
                raise
            except ConnectionError as why:
                if not isinstance(failure, Refused):  # an answer tells more than silence
                    failure = why
        self._dial_s = min(2 * self._dial_s, MOST_DIAL_S)
        raise failure or ConnectionRefusedError(f"nobody listens at {', '.join(map(_text, tried))}")

    def _call(self, identity: Identity, address: Address, sock: socket.socket) -> Guest:
        """At rank 0's door. Raises ConnectionError, Refused, and errors that rank 0 sends."""
        own = own_address(sock)
        listener = _listener(sock) if identity.size > FLAT else None
        try:
            note = f"{self._token} {listener.getsockname()[1]}" if listener else self._token
            dialer = Dialer(identity, PURPOSE, 0, note)
            seat = json.loads(self._ask(sock, dialer, address, self._dial_s)[1:])
            self.answered = address
            if seat["parent"] != 0:
                sock.close()
                sock = self._sit_with(seat["parent"], identity, (seat["at"][0], seat["at"][1]))
            if listener and not seat["inner"]:
                listener.close()
                listener = None
            return Guest(identity, own, (seat["parent"], sock), listener, self._deadline)
        except BaseException:
            sock.close()
            if listener:
                listener.close()
            raise

    def _sit_with(self, parent: int, identity: Identity, at: Address) -> socket.socket:
        try:
            sock = _connect(at, self._deadline.within(PARENT_DIAL_S))
        except OSError as why:
            text = f"rank {parent} at {_text(at)}, which passes messages on to rank 0, is not reached: {why}"
            raise ConnectionError(text) from None
        try:
            self._ask(sock, Dialer(identity, PURPOSE, parent), at, PARENT_DIAL_S)
        except BaseException:
            sock.close()
            raise
        return sock

    def _ask(self, sock: socket.socket, dialer: Dialer, at: Address, patience_s: float) -> bytes:
        """Through the door, and what is said there. Once we are known only the deadline ends the wait."""
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            knock(sock, dialer, self._deadline.within(patience_s))
            answer = frames.receive(sock, self._deadline)
        except TimeoutError:
            raise ConnectionError(f"{_text(at)} was silent") from None
        except OSError as why:
            raise Refused(f"at {_text(at)} {why}") from None
        raise_if_error(answer)
        return answer


def pause(attempt: int, deadline: Deadline) -> None:
    """Between two attempts: short at first, for ranks start at nearly the same time."""
    time.sleep(min(0.002 * 1.5 ** min(attempt, 10), 0.1, deadline.left_s()))


def _connect(at: Address, limit: Deadline) -> socket.socket:
    return socket.create_connection(at, limit.left_s() or 0.001)


def _listener(sock: socket.socket) -> socket.socket:
    """Where others can come: at the address that `sock` goes out by."""
    return socket.create_server((sock.getsockname()[0], 0), family=sock.family, backlog=socket.SOMAXCONN)


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
