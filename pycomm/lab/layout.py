"""What a lab is made of: pure data, and every name, address and rate that follows from it.

h0 ─ nic0 ══ h0r0 ┐                       ┌ h1r0 ══ nic0 ─ h1       one bridge per rail: its leaf switch
                  leaf0 ─ up0 ══ down0 ┐  │
                  leaf1 ─ up1 ══ down1 ┴ spine                      the spine routes between the rails
h0 ─ nic1 ══ h0r1 ┘                       └ h1r1 ══ nic1 ─ h1       ══ a pair of veth, shaped on both ends
h0 ─ eth0 ══ h0m ─ mgmt ─ h1m ══ eth0 ─ h1                          management, not shaped
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pycomm.errors import InvalidArgument

MAX_HOSTS = 64
MAX_RAILS = 16
LEAST_MBIT, MOST_MBIT = 1.0, 100_000.0
FABRIC, SPINE = "fabric", "spine"  # the namespaces that are no host


@dataclass(frozen=True)
class Layout:
    """The shape and the rates of a lab: NICs of each host, Mbit/s of a NIC and of a leaf's up-link."""

    rails: tuple[int, ...]
    rate_mbit: float
    spine_mbit: float

    @classmethod
    def of(cls, hosts: int, rails: int | Sequence[int], rate_mbit: float, spine_mbit: float | None) -> Layout:
        """Checks what the user gave; `spine_mbit` None: as much as one NIC.

        Raises:
            InvalidArgument: a number is out of range, or `rails` names more or fewer hosts.
        """
        if not 1 <= hosts <= MAX_HOSTS:
            raise InvalidArgument(f"{hosts} hosts: a lab has 1 … {MAX_HOSTS}")
        each = (rails,) * hosts if isinstance(rails, int) else tuple(rails)
        if len(each) != hosts:
            raise InvalidArgument(f"rails for {len(each)} hosts are given, but there are {hosts} hosts")
        for number in each:
            if not 1 <= number <= MAX_RAILS:
                raise InvalidArgument(f"{number} rails: a host has 1 … {MAX_RAILS}")
        spine = rate_mbit if spine_mbit is None else spine_mbit
        return cls(each, check_mbit(rate_mbit), check_mbit(spine))

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return len(self.rails)

    @property
    def leaves(self) -> int:
        """How many leaf switches there are: one per rail of the host with most."""
        return max(self.rails)

    def hosts_file(self) -> str:
        """Text of /etc/hosts: every host by its management address."""
        names = "".join(f"{address(host)} {host_name(host)}\n" for host in range(self.hosts))
        return f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{names}"

    def topology_file(self, host: int) -> str:
        """Text of the topology file of a host: which of its NICs is on which rail, and its bit/s."""
        rate = round(self.rate_mbit * 1e6)
        nics = {nic_name(rail): {"rail": rail, "bit_per_s": rate} for rail in range(self.rails[host])}
        return json.dumps({"format": "pycomm-topology-1", "nics": nics}, indent=1)

    def host_index(self, host: int | str) -> int:
        """Of a host given by its index or its name. Raises InvalidArgument if there is none."""
        names = [host_name(index) for index in range(self.hosts)]
        if isinstance(host, str) and host in names:
            return names.index(host)
        if isinstance(host, str) or not 0 <= host < self.hosts:
            raise InvalidArgument(f"there is no host {host} in this lab: there are {names[0]} … {names[-1]}")
        return host

    def nic(self, host: int | str, rail: int) -> int:
        """The host's index. Raises InvalidArgument if it does not exist or is not on that rail."""
        index = self.host_index(host)
        if not 0 <= rail < self.rails[index]:
            raise InvalidArgument(
                f"{host_name(index)} is on rails 0 … {self.rails[index] - 1}, not on {rail}"
            )
        return index

    def as_dict(self) -> dict[str, object]:
        """For JSON; `Layout(**…)` reads it back, once `rails` is a tuple again."""
        return asdict(self)


def check_mbit(mbit: float) -> float:
    """The same rate in Mbit/s. Raises InvalidArgument if no link can have it."""
    if not (math.isfinite(mbit) and LEAST_MBIT <= mbit <= MOST_MBIT):
        raise InvalidArgument(f"{mbit:g} Mbit/s: a link has {LEAST_MBIT:g} … {MOST_MBIT:g} Mbit/s")
    return mbit


def host_name(host: int) -> str:
    """Such as "h0"."""
    return f"h{host}"


def nic_name(rail: int) -> str:
    """Of the NIC, seen in its host, such as "nic0"."""
    return f"nic{rail}"


def port_name(host: int, rail: int) -> str:
    """Of the NIC's other end, the port of its leaf switch, such as "h0r0"."""
    return f"h{host}r{rail}"


def uplink_name(rail: int) -> str:
    """Of the leaf's port to the spine, such as "up0"."""
    return f"up{rail}"


def address(host: int) -> str:
    """Of a host, for management."""
    return f"10.76.0.{host + 1}"


def rail_address(host: int, rail: int) -> str:
    """Of a host's NIC."""
    return f"10.77.{rail}.{host + 1}"


def gateway(rail: int) -> str:
    """The spine's address on a rail."""
    return f"10.77.{rail}.254"


def mac(host: int, rail: int) -> str:
    """Of a host's NIC: locally administered, and fixed, so that leaf switches need not learn."""
    return f"02:77:{rail:02x}:00:00:{host + 1:02x}"


def gateway_mac(rail: int) -> str:
    """The spine's on a rail."""
    return f"02:77:{rail:02x}:00:00:fe"
