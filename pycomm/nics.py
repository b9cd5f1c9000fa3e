"""The network interfaces of this machine: what the kernel says of each, and which can carry traffic."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import re
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

SIOCGIFFLAGS, SIOCGIFADDR = 0x8913, 0x8915  # linux/sockios.h
IFF_UP, IFF_LOOPBACK, IFF_POINTOPOINT, IFF_RUNNING = 0x1, 0x8, 0x10, 0x40  # linux/if.h
IFA_F_DADFAILED, IFA_F_TENTATIVE = 0x08, 0x40  # linux/if_addr.h: an address that is not one (yet)
OVERLAYS = ("bridge", "vxlan", "geneve")  # of DEVTYPE: they join what is not, or not only, the network


@dataclass(frozen=True)
class Interface:
    """A network interface.

    Attributes:
        name: Such as "eth0".
        up: Whether somebody has turned it on.
        carrier: Whether it could send: a cable, or for a bridge a port, that is up. Never where not `up`.
        addresses: IPv4 and then IPv6, without those that are not valid yet.
        bit_per_s: Its rate, None where the driver does not say.
        kind: "loopback", "overlay" (a bridge or tunnel) or "nic".
    """

    name: str
    up: bool
    carrier: bool
    addresses: tuple[str, ...]
    bit_per_s: int | None = None
    kind: str = "nic"

    @property
    def reachable_at(self) -> tuple[str, ...]:
        """The first IPv4 and the first IPv6 address that another machine could use."""
        found = [address for address in self.addresses if _is_public(address)]
        return tuple(next(iter(a for a in found if (":" in a) == v6), "") for v6 in (False, True))

    @property
    def fault(self) -> str:
        """Why it can carry nothing to another machine; "" if it might."""
        if self.kind == "loopback":
            return "loopback"
        if not self.up:
            return "down"
        if not self.carrier:
            return "no carrier"
        if not any(self.reachable_at):
            return "no address that another machine could reach"
        return ""


def interfaces() -> list[Interface]:
    """The interfaces of this network namespace, in natural order."""
    v6 = _ipv6_addresses()
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for index, name in socket.if_nameindex():
            flags = _flags(sock, name)
            addresses = (*_ipv4(sock, name), *v6.get(name, ()))
            up = bool(flags & IFF_UP)
            about = _Described(name, index)
            found.append(
                Interface(
                    name,
                    up,
                    up and bool(flags & IFF_RUNNING),
                    addresses,
                    about.bit_per_s(),
                    about.kind(flags),
                )
            )
    return sorted(found, key=lambda interface: natural(interface.name))


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key by which nic2 comes before nic10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts)


class _Described:
    """What /sys says of an interface; nothing where it shows another network namespace's."""

    def __init__(self, name: str, index: int) -> None:
        self._folder = Path("/sys/class/net") / name
        self._known = self._read("ifindex") == str(index)

    def _read(self, file: str) -> str:
        try:
            return (self._folder / file).read_text().strip()
        except (OSError, UnicodeDecodeError):  # also EINVAL, of an interface that is down
            return ""

    def bit_per_s(self) -> int | None:
        speed = self._read("speed") if self._known else ""  # in Mbit/s; -1: unknown
        return int(speed) * 10**6 if speed.isdecimal() and int(speed) > 0 else None

    def kind(self, flags: int) -> str:
        if flags & IFF_LOOPBACK:
            return "loopback"
        overlay = flags & IFF_POINTOPOINT or (
            self._known and any(f"DEVTYPE={kind}" in self._read("uevent").split() for kind in OVERLAYS)
        )
        return "overlay" if overlay else "nic"


def _flags(sock: socket.socket, name: str) -> int:
    try:
        answer = fcntl.ioctl(sock, SIOCGIFFLAGS, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return 0
    return int(struct.unpack_from("H", answer, 16)[0])


def _ipv4(sock: socket.socket, name: str) -> list[str]:
    try:
        answer = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return []
    return [socket.inet_ntoa(answer[20:24])]


def _ipv6_addresses() -> dict[str, list[str]]:
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return {}
    found: dict[str, list[str]] = {}
    for line in lines:
        address, _, _, _, flags, name = line.split()
        if not int(flags, 16) & (IFA_F_DADFAILED | IFA_F_TENTATIVE):
            found.setdefault(name, []).append(str(ipaddress.IPv6Address(bytes.fromhex(address))))
    return found


def _is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return not (parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified)


def is_loopback(address: str) -> bool:
    """True for 127.0.0.0/8 and ::1."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def family_of(address: str) -> socket.AddressFamily:
    """AF_INET or AF_INET6."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def outward_addresses() -> list[str]:
    """Where other machines may reach this one: the source of its default route, then what interfaces that
    could carry something have; bridges and tunnels last. Empty if there is only loopback.
    """
    found = []
    for far in ("192.0.2.1", "2001:db8::1"):  # RFC 5737, RFC 3849: documentation, routed like any far address
        with socket.socket(family_of(far), socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
            sock.connect((far, 9))  # sends nothing: it only looks up the route
            found.append(str(sock.getsockname()[0]))
    usable = [interface for interface in interfaces() if not interface.fault]
    for interface in sorted(usable, key=lambda each: each.kind == "overlay"):
        found += filter(None, interface.reachable_at)
    return [address for address in dict.fromkeys(found) if not is_loopback(address)]


def is_own(address: str) -> bool:
    """True if `address` belongs to this machine."""
    with socket.socket(family_of(address), socket.SOCK_STREAM) as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
    return True
