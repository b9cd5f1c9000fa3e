"""Networks: which NICs this job uses between its machines, and which of them are this rank's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from socket import socket

from pycomm.admission.deadline import Deadline
from pycomm.admission.handshake import Identity
from pycomm.bootstrap import Bootstrap
from pycomm.errors import Error, ranks_text
from pycomm.log import logger
from pycomm.machine import kernel_of
from pycomm.offer import Nic
from pycomm.wiring import address_book, choice
from pycomm.wiring.address_book import Entry
from pycomm.wiring.choice import Railed
from pycomm.wiring.links import Reach
from pycomm.wiring.listeners import Listeners
from pycomm.wiring.probe import Prober

OCTET = 254  # usable values in a field of 127.x.y.z


class Networks:
    """What follows from the address book for the wires between machines.

    Attributes:
        entries: The address book.
        groups: The ranks of each label.
        listeners: This rank's.
        shares: For each rank its NICs; none in a job on one machine. Known once they are chosen.
        reaches: For each rank where it can be dialled. Known then, too.
    """

    def __init__(self, entries: list[Entry], rank: int) -> None:
        self.entries = entries
        self.groups = address_book.labelled(entries)
        self.listeners = Listeners()
        self.shares: list[list[Railed]] = [[] for _ in entries]
        self.reaches: list[Reach] = []
        self._rank = rank
        self._machines = address_book.machines(entries)
        self._single = len(self._machines) == 1
        self._offers = {} if self._single else address_book.offers(entries)
        self._explicit = all(each.explicit for each in self._offers.values())
        if not self._single:
            hosts = {machine: first.host for machine, first in self._machines.items()}
            choice.check_offers(self._offers, hosts)
            if self._explicit:
                self._share_out(choice.named(self._offers))

    @cached_property
    def group(self) -> list[int]:
        """The ranks of this rank's label."""
        return next(group for group in self.groups if self._rank in group)

    def listen(self) -> None:
        """Where others of this machine and, over the NICs that may be chosen, of other machines come in."""
        own = self.entries[self._rank]
        if sum(entry.machine == own.machine for entry in self.entries) > 1:
            self.listeners.open_loopback(self._loopback())
        if self._single:
            return
        nics = [each.nic for each in self.shares[self._rank]] or self._offers[own.machine].nics
        v4_only = all(":" not in nic.addresses[0] for offer in self._offers.values() for nic in offer.nics)
        self.listeners.open_nics(nics, v4_only)
        self._say_apart()

    def _loopback(self) -> str:
        """127.0.(rail+1).(node+1), so that virtual nodes and rails can be told apart on the wire."""
        rail = self.entries[self._rank].rail
        rail = self.group.index(self._rank) if rail is None else rail
        return f"127.0.{rail % OCTET + 1}.{self.groups.index(self.group) % OCTET + 1}"

    def choose(
        self, bootstrap: Bootstrap, identity: Identity, reaches: list[Reach], deadline: Deadline
    ) -> None:
        """Settles who uses which NICs; where nobody has named them, by trying. `reaches` is where each rank
        listens.

        Raises:
            Error: no candidate connects all machines.
        """
        if not self._single and not self._explicit:
            hosts = {machine: first.host for machine, first in self._machines.items()}
            prober = Prober(bootstrap, identity, reaches, hosts)
            rows = prober.working(choice.candidates(self._offers), deadline)
            self._share_out(choice.railed(rows))
        self.reaches = [
            replace(reach, share=share) for reach, share in zip(reaches, self.shares, strict=True)
        ]

    def _share_out(self, nics: dict[str, list[Railed]]) -> None:
        """Among the ranks of a node; of those that were given NICs of their own among them only."""
        together: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
        for entry in self.entries:
            own = tuple(nic["name"] for nic in entry.offer["nics"])
            together.setdefault((entry.label, entry.machine, own), []).append(entry.rank)
        for (_, machine, own), ranks in together.items():
            usable = [each for each in nics[machine] if each.nic.name in own]
            if not usable:
                raise Error(
                    f"init: {ranks_text(ranks)} may use {', '.join(own)}, but the machines reach each "
                    f"other by {', '.join(each.nic.name for each in nics[machine])}: set PYCOMM_NIC alike"
                )
            for index, rank in enumerate(ranks):
                self.shares[rank] = choice.share(usable, index, len(ranks), self.entries[rank].rail)

    def unused(self) -> list[socket]:
        """The listeners at NICs that were not chosen."""
        used = {"", *(each.nic.name for each in self.shares[self._rank])}
        return [
            sock for name, opened in self.listeners.sockets.items() if name not in used for sock in opened
        ]

    def bit_per_s(self) -> int | None:
        """The rate of the slowest NIC that any rank uses; None where none is, or nobody knows."""
        nics: Sequence[Nic] = [each.nic for share in self.shares for each in share]
        return min((nic.bit_per_s for nic in nics if nic.bit_per_s is not None), default=None)

    def text(self) -> str:
        """This rank's NICs, for the log."""
        shown = [f"{each.nic.name} (rail {each.rail})" for each in self.shares[self._rank]]
        return f", by NIC {', '.join(shown)}" if shown else ""

    def _say_apart(self) -> None:
        """Once for each machine: that others share its kernel, and are nodes of their own still."""
        own = self.entries[self._rank]
        kernel = kernel_of(own.machine)
        others = [each.host for each in self._machines.values() if kernel_of(each.machine) == kernel]
        if self._machines[own.machine] is own and len(others) > 1:
            logger.info(
                "%s: this job has %d network namespaces on this kernel (containers?): memory cannot be "
                "handed from one to another, so they are separate nodes",
                own.host,
                len(others),
            )
