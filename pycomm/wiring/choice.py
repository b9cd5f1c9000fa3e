"""Which NICs carry the traffic between the machines of a job, and on which rail each is: from what all
machines offer, so that every rank finds the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pycomm.errors import Error, InvalidArgument
from pycomm.nics import is_loopback, natural
from pycomm.offer import Nic, Offer


@dataclass(frozen=True)
class Railed:
    """A NIC that was chosen, and the rail that it is on."""

    rail: int
    nic: Nic


@dataclass(frozen=True)
class Candidate:
    """One NIC of each machine, which would be one rail."""

    nics: Mapping[str, Nic]

    @property
    def name(self) -> str:
        """Such as "nic0", or "ens1 and enp3s0" where machines call it differently."""
        return " and ".join(dict.fromkeys(nic.name for nic in self.nics.values()))

    @property
    def rank(self) -> tuple[bool, int, bool]:
        """Better ones have more: no bridge or tunnel, then the speed of the slowest, with unknown speeds
        below all others, then those that do not carry the rendezvous.
        """
        nics = self.nics.values()
        return (
            not any(nic.overlay for nic in nics),
            min(nic.bit_per_s or 0 for nic in nics),
            not any(nic.meets for nic in nics),
        )


def named(offers: Mapping[str, Offer]) -> dict[str, list[Railed]]:
    """The NICs of each machine where people have named them all.

    The rail is what a topology file says; else the place of the NIC's name among the names of all machines,
    so that a machine with one NIC less still has the others on the right rails; where no two machines share
    a name, its place on its machine.
    """
    names = [nic.name for offer in offers.values() for nic in offer.nics]
    order = sorted(dict.fromkeys(names), key=natural)
    alike = len(order) < len(names)
    found = {}
    for machine, offer in offers.items():
        found[machine] = [
            Railed(nic.rail if nic.rail is not None else order.index(nic.name) if alike else place, nic)
            for place, nic in enumerate(offer.nics)
        ]
    return found


def candidates(offers: Mapping[str, Offer]) -> list[list[Candidate]]:
    """What is to be tried where nobody has named NICs, the best first: those of one list are equally good.

    Machines have a candidate in common where a name is the same; where no name is on all machines, by place.
    """
    by_name = {machine: {nic.name: nic for nic in offer.nics} for machine, offer in offers.items()}
    shared = set.intersection(*(set(nics) for nics in by_name.values()))
    rows = [
        Candidate({machine: nics[name] for machine, nics in by_name.items()})
        for name in sorted(shared, key=natural)
    ]
    if not rows:
        columns = [_best_first(machine, offer.nics) for machine, offer in offers.items()]
        rows = [Candidate(dict(zip(offers, nics, strict=True))) for nics in zip(*columns, strict=False)]
    ordered = sorted(rows, key=lambda row: row.rank, reverse=True)  # stable: natural order within equals
    return [list(group) for _, group in groupby(ordered, key=lambda row: row.rank)]


def _best_first(machine: str, nics: Sequence[Nic]) -> list[Nic]:
    return sorted(nics, key=lambda nic: Candidate({machine: nic}).rank, reverse=True)


def railed(rows: Sequence[Candidate]) -> dict[str, list[Railed]]:
    """The candidates as rails 0, 1, …, by machine."""
    return {
        machine: [Railed(rail, row.nics[machine]) for rail, row in enumerate(rows)]
        for machine in rows[0].nics
    }


def check_offers(offers: Mapping[str, Offer], hosts: Mapping[str, str]) -> None:
    """Of a job on several machines. Raises InvalidArgument or Error where one offers nothing that others
    reach; `hosts` has the machines' names.
    """
    for machine, offer in offers.items():
        if any(is_loopback(address) for nic in offer.nics for address in nic.addresses):
            raise InvalidArgument(
                f"init: PYCOMM_NIC on {hosts[machine]} names loopback, which no other machine can reach, and "
                f"the job has {len(offers)}: name an interface of the network"
            )
        if not offer.nics:
            raise Error(
                f"init: {hosts[machine]} has no interface that other machines could reach it at, and the "
                f"job is on {len(offers)} machines: give it an address on their network (`pycomm info` lists "
                f"what there is)"
            )


def share(nics: Sequence[Railed], index: int, ranks: int, rail: int | None) -> list[Railed]:
    """The NICs of one rank: those at index, index + ranks, index + 2 · ranks, …; where ranks are more than
    NICs, the one at index modulo their number.

    Args:
        nics: Of its machine.
        index: Its place among the ranks of its node.
        ranks: How many those are.
        rail: PYCOMM_RAIL, which picks the NIC of this rail alone, else that at rail modulo their number.
    """
    if rail is not None:
        same = [each for each in nics if each.rail == rail]
        return same[:1] or [nics[rail % len(nics)]]
    return list(nics[index % len(nics) :: ranks]) if ranks < len(nics) else [nics[index % len(nics)]]


def pairs(mine: Sequence[Railed], theirs: Sequence[Railed]) -> list[tuple[Nic, Nic]]:
    """The NICs between which two ranks have links, the same seen from both: on each rail that both are on
    k-th with k-th; without such a rail k-th with k-th.
    """
    rails = sorted({each.rail for each in mine} & {each.rail for each in theirs})
    if not rails:
        return [(a.nic, b.nic) for a, b in zip(mine, theirs, strict=False)]
    return [
        (a.nic, b.nic)
        for rail in rails
        for a, b in zip(
            (each for each in mine if each.rail == rail),
            (each for each in theirs if each.rail == rail),
            strict=False,
        )
    ]
