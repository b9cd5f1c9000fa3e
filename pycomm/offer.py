"""What this host offers for traffic between nodes: its NICs, by what a person said of them or by what they
are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pycomm.errors import InvalidArgument
from pycomm.log import logger
from pycomm.nics import Interface, natural
from pycomm.settings import Settings
from pycomm.topo.topology_file import NicSpec, parse

TOPOLOGY_FILE, NAMED, FOUND = "topology file", "PYCOMM_NIC", "found"


@dataclass(frozen=True)
class Nic:
    """An interface that may carry traffic between nodes.

    Attributes:
        name: Such as "nic0".
        addresses: At most one IPv4 address, then at most one IPv6 address.
        bit_per_s: Its rate; None where nobody knows.
        overlay: Whether it is a bridge or tunnel: a last resort.
        meets: Whether the rendezvous goes over it.
        rail: What the topology file says; None without one.
    """

    name: str
    addresses: tuple[str, ...]
    bit_per_s: int | None = None
    overlay: bool = False
    meets: bool = False
    rail: int | None = None


@dataclass(frozen=True)
class Offer:
    """The NICs of one host, in order of rail and then name, and who chose them."""

    nics: tuple[Nic, ...]
    source: str = FOUND

    @property
    def explicit(self) -> bool:
        """Whether a person named them, so that nothing is guessed or tried."""
        return self.source != FOUND

    def packed(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def unpack(cls, data: Mapping[str, Any]) -> Offer:
        """Reads `packed`."""
        nics = (Nic(**{**nic, "addresses": tuple(nic["addresses"])}) for nic in data["nics"])
        return cls(tuple(nics), str(data["source"]))


def offer(given: Settings, here: Sequence[Interface], met_at: str | None) -> Offer:
    """The NICs of this host that are candidates.

    Args:
        given: PYCOMM_TOPO_FILE wins; else PYCOMM_NIC; else all that could carry something.
        here: The interfaces that there are.
        met_at: The address at which this rank met the others, which tells the NIC of the rendezvous.

    Raises:
        InvalidArgument: PYCOMM_NIC or the topology file names nothing that there is and works; the text lists
            the interfaces.
    """
    named = given.nic is not None and not given.nic.excludes
    picked = [interface for interface in here if _picked(given, interface)]
    usable = [each for each in picked if each.kind == "loopback" or not each.fault]
    if given.nic is not None and not usable:
        raise InvalidArgument(f"PYCOMM_NIC={given.nic} leaves no usable interface: {_listed(here)}")
    specs = read_topology_file(given.topo_file) if given.topo_file else {}
    if specs:
        nics = [_nic(each, met_at, specs[each.name]) for each in usable if each.name in specs]
        _check_file(given, specs, nics, here)
        return Offer(_ordered(nics), TOPOLOGY_FILE)
    return Offer(tuple(_nic(each, met_at) for each in usable), NAMED if named else FOUND)


def joined(offers: Sequence[Offer]) -> Offer:
    """What several ranks of one host offer together."""
    nics: dict[str, Nic] = {}
    for each in (nic for offer in offers for nic in offer.nics):
        known = nics.setdefault(each.name, each)
        if each.meets and not known.meets:  # not every rank has met the others over the network
            nics[each.name] = each
    sources = [offer.source for offer in offers]
    return Offer(_ordered(nics.values()), FOUND if FOUND in sources else sources[0])


def _ordered(nics: Iterable[Nic]) -> tuple[Nic, ...]:
    return tuple(sorted(nics, key=lambda nic: (nic.rail or 0, natural(nic.name))))


def read_topology_file(path: str | None) -> dict[str, NicSpec]:
    """The NICs that PYCOMM_TOPO_FILE speaks of. Raises InvalidArgument."""
    try:
        return parse(Path(path or "").read_text())
    except (OSError, ValueError) as why:
        reason = why.strerror if isinstance(why, OSError) else why
        raise InvalidArgument(f"PYCOMM_TOPO_FILE={path}: {reason}") from None


def state(interface: Interface) -> str:
    """One interface in words, such as "up, 10.0.0.1, 25 Gbit/s" or "no carrier"."""
    if interface.fault:
        return interface.fault
    rate = "speed unknown" if interface.bit_per_s is None else f"{interface.bit_per_s / 1e9:g} Gbit/s"
    overlay = ["bridge or tunnel"] if interface.kind == "overlay" else []
    return ", ".join(["up", *filter(None, interface.reachable_at), rate, *overlay])


def _picked(given: Settings, interface: Interface) -> bool:
    if interface.kind == "loopback":
        return given.nic is not None and given.nic.names_exactly(interface.name)
    return given.nic is None or given.nic.picks(interface.name)


def _nic(interface: Interface, met_at: str | None, spec: NicSpec | None = None) -> Nic:
    loopback = interface.kind == "loopback"  # named exactly: refused only where there are other machines
    return Nic(
        interface.name,
        interface.addresses[:1] if loopback else tuple(filter(None, interface.reachable_at)),
        interface.bit_per_s if spec is None or spec.bit_per_s is None else spec.bit_per_s,
        interface.kind == "overlay",
        met_at in interface.addresses,
        None if spec is None else spec.rail,
    )


def _check_file(
    given: Settings, specs: Mapping[str, NicSpec], nics: Sequence[Nic], here: Sequence[Interface]
) -> None:
    if not nics:
        raise InvalidArgument(
            f"PYCOMM_TOPO_FILE={given.topo_file} names no usable interface: {_listed(here)}"
        )
    states = {each.name: state(each) for each in here}
    for name in sorted(set(specs) - {nic.name for nic in nics}):
        if given.nic is None or given.nic.picks(name):  # else a person left it out
            why = states.get(name, "there is no such interface")
            logger.warning(
                "%s is not used, though PYCOMM_TOPO_FILE=%s names it: %s", name, given.topo_file, why
            )


def _listed(here: Sequence[Interface]) -> str:
    return "there are " + "; ".join(f"{each.name} ({state(each)})" for each in here)
