"""What this machine is and has: its identity, the CPUs we may use, its interfaces and addresses."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SIOCGIFADDR = 0x8915  # linux/sockios.h


def machine_id() -> str:
    """Equal for two processes only if they share a kernel and a network, so that 127.0.0.1 is one place
    for both.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"


def kernel_of(machine: str) -> str:
    """The part of a machine's id that all processes on one kernel share, whatever their network."""
    return machine.partition("/")[0]


def usable_cpus() -> int:
    """CPUs that this process may keep busy: its affinity, cut by the quotas of its control groups."""
    return max(1, int(min(len(os.sched_getaffinity(0)), cpu_quota())))


def cpu_quota() -> float:
    """How many CPUs' time the control groups of this process grant; infinite without a quota."""
    cpus = float("inf")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            cpus = min(cpus, _quota(Path("/sys/fs/cgroup"), path, _quota_v2))
        elif "cpu" in controllers.split(","):
            cpus = min(cpus, _quota(Path("/sys/fs/cgroup/cpu"), path, _quota_v1))
    return cpus


def _quota(mount: Path, path: str, read: Callable[[Path], float]) -> float:
    """The least quota of a control group and those around it. Inside a container only the mount may be
    visible.
    """
    group = mount / path.lstrip("/")
    least = float("inf")
    while True:
        with contextlib.suppress(OSError, ValueError):
            least = min(least, read(group))
        if group == mount or mount not in group.parents:
            return least
        group = group.parent


def _quota_v2(group: Path) -> float:
    quota, period = (group / "cpu.max").read_text().split()
    return float("inf") if quota == "max" else int(quota) / int(period)


def _quota_v1(group: Path) -> float:
    quota = int((group / "cpu.cfs_quota_us").read_text())
    period = int((group / "cpu.cfs_period_us").read_text())
    return float("inf") if quota <= 0 else quota / period


@dataclass(frozen=True)
class Interface:
    """A network interface with its addresses."""

    name: str
    up: bool
    addresses: tuple[str, ...]


def interfaces() -> list[Interface]:
    """The interfaces of this network namespace, by name."""
    found = []
    for _, name in sorted(socket.if_nameindex(), key=lambda item: item[1]):
        try:
            up = int(Path(f"/sys/class/net/{name}/flags").read_text(), 16) & 1 == 1  # IFF_UP
        except OSError:
            up = False
        found.append(Interface(name, up, tuple(_ipv4(name) + _ipv6(name))))
    return found


def _ipv4(name: str) -> list[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return []
    return [socket.inet_ntoa(answer[20:24])]


def _ipv6(name: str) -> list[str]:
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines]
    return [str(ipaddress.IPv6Address(bytes.fromhex(f[0]))) for f in fields if f[5] == name]


def is_loopback(address: str) -> bool:
    """True for 127.0.0.0/8 and ::1."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def outward_address() -> str:
    """The address that other machines reach this one at: the source of its default route, else that of the
    first interface that is up and no bridge. Loopback only if there is nothing else.
    """
    for far in ("192.0.2.1", "2001:db8::1"):  # RFC 5737, RFC 3849: documentation, routed like any far address
        family = socket.AF_INET6 if ":" in far else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
            sock.connect((far, 9))  # sends nothing: it only looks up the route
            return str(sock.getsockname()[0])
    for interface in interfaces():
        if interface.up and not Path(f"/sys/class/net/{interface.name}/bridge").exists():
            for address in interface.addresses:
                if not is_loopback(address) and not ipaddress.ip_address(address).is_link_local:
                    return address
    return "127.0.0.1"


def is_own(address: str) -> bool:
    """True if `address` belongs to this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
    return True
