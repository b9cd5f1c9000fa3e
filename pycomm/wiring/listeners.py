"""Where this rank listens: at the addresses of its NICs, and on loopback for others of its machine."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from typing import Any

from pycomm.errors import Error
from pycomm.log import TRACE, logger
from pycomm.offer import Nic
from pycomm.wiring.links import listen


class Listeners:
    """The sockets, by the name of their NIC; "" is loopback."""

    def __init__(self) -> None:
        self.sockets: dict[str, list[socket.socket]] = {}

    def open_loopback(self, address: str) -> None:
        """For ranks of this machine. Where loopback is down there is none, which only TCP would miss."""
        try:
            self.sockets[""] = [listen(address, "")]
        except OSError as why:
            logger.log(TRACE, "cannot listen at %s: %s", address, why.strerror)

    def open_nics(self, nics: Iterable[Nic], v4_only: bool) -> None:
        """One for each address of each NIC, or for its IPv4 address only. Raises Error."""
        for nic in nics:
            opened = self.sockets.setdefault(nic.name, [])
            for address in nic.addresses[: 1 if v4_only else None]:
                try:
                    opened.append(listen(address, nic.name))
                except OSError as why:
                    raise Error(
                        f"init: cannot listen at {address} of {nic.name}: {why.strerror}: has the interface "
                        f"changed just now?"
                    ) from None

    def all(self) -> list[socket.socket]:
        """All that are open."""
        return [sock for opened in self.sockets.values() for sock in opened]

    def published(self) -> dict[str, Any]:
        """Where they are, as JSON has it."""
        at = {name: [sock.getsockname()[:2] for sock in opened] for name, opened in self.sockets.items()}
        loopback = at.pop("", [None])[0]
        return {"loopback": loopback, "nics": at}

    def close(self) -> None:
        """Closes them. Idempotent."""
        for sock in self.all():
            with contextlib.suppress(OSError):
                sock.close()
