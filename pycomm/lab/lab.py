"""A rail-optimised network on one machine: hosts, rails, leaf switches and a spine, out of namespaces."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pycomm.errors import InvalidArgument, Unsupported
from pycomm.lab import counters, layout, links
from pycomm.lab.counters import Counters
from pycomm.lab.faults import Faults
from pycomm.lab.holder import NAME, Holder
from pycomm.lab.layout import FABRIC, SPINE, Layout

CONGESTION_CONTROLS = ("cubic", "reno")  # loss-based: they share a token bucket fairly and need no pacing
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")  # outside the first network namespace
NSENTER = {"mnt": "mount"}  # how nsenter(1) calls what /proc calls otherwise


class LabHost:
    """One host of a lab."""

    def __init__(self, lab: Layout, index: int, holder: Holder, files: Mapping[str, str]) -> None:
        self.name = layout.host_name(index)
        self.address = layout.address(index)
        """For management; the link is not shaped."""
        self.rail_addresses = tuple(layout.rail_address(index, rail) for rail in range(lab.rails[index]))
        self._holder = holder
        self._files = files

    def environment(self) -> dict[str, str]:
        """What a pycomm job needs to know here: which NICs, their rails and rates, and the lab's secret."""
        nics = ",".join(layout.nic_name(rail) for rail in range(len(self.rail_addresses)))
        return {
            "PYCOMM_NIC": f"={nics}",
            "PYCOMM_TOPO_FILE": self._files[self.name],
            "PYCOMM_SECRET_FILE": self._files["secret"],
        }

    def popen(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """subprocess.Popen with all its options, inside this host: its interfaces, /sys, /etc/hosts, /dev/shm
        and name. Other files are the machine's.

        Inside the lab the process has another number, which its os.getpid() gives and which means nothing
        outside: signal it through the Popen. It dies with the lab.

        Args:
            command: Words.
            env: All variables; None: those of this process. `environment()` is not added.
            options: As subprocess.Popen takes them.

        Raises:
            InvalidArgument: the lab has ended.
            OSError: as subprocess.Popen does.
        """
        return self._holder.popen(self.name, command, env=env, **options)

    def entry(self) -> list[str]:
        """Words before a command that run it in this host, from inside any host of the lab: a launcher's
        remote shell, by nsenter(1).
        """
        spaces = self._holder.spaces[self.name]
        options = [f"--{NSENTER.get(kind, kind)}=/proc/1/fd/{spaces[kind]}" for kind in spaces]
        return ["nsenter", *options, "--"]

    def free_port(self) -> int:
        """A TCP port of this host that nobody listens at now. Raises InvalidArgument: the lab has ended."""
        return self._holder.free_port(self.name)


class Lab:
    """Hosts with one NIC per rail, a leaf switch per rail, and a spine between the leaves; Linux, root only.

    It exists until it is closed, or until this process ends, however that ends; then no interface, namespace,
    file or process is left. Several may exist at once.

    Args:
        hosts: How many.
        rails: NICs of every host, or of each one; a host with fewer is on the first rails.
        rate_mbit: Of every NIC, each way, in Mbit/s. About 95 % of it is payload.
        spine_mbit: Of every leaf's up-link, each way; None: as `rate_mbit`.

    Raises:
        InvalidArgument: a number is out of range.
        Unsupported: not root, or the machine lacks something; the text says what.
    """

    def __init__(
        self,
        hosts: int = 4,
        rails: int | Sequence[int] = 2,
        rate_mbit: float = 200.0,
        spine_mbit: float | None = None,
    ) -> None:
        self._begin(Layout.of(hosts, rails, rate_mbit, spine_mbit), None)

    def _begin(self, lab: Layout, listener: socket.socket | None) -> None:
        _need_root()
        self.congestion_control = _congestion_control()
        """Of TCP in every host."""
        contents = {layout.host_name(host): lab.topology_file(host) for host in range(lab.hosts)}
        contents["secret"] = secrets.token_hex(32)
        # In the holder's memory: files that nobody need remove. It is process 1 of the lab.
        kept = {name: _memory_file(name, text) for name, text in contents.items()}
        files = {name: f"/proc/1/fd/{descriptor}" for name, descriptor in kept.items()}
        try:
            holder = Holder.start(_order(lab, self.congestion_control), list(kept.values()), listener)
        finally:
            for descriptor in kept.values():
                os.close(descriptor)
        self._become(lab, holder, files)
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _become(self, lab: Layout, holder: Holder, files: Mapping[str, str]) -> None:
        self.layout = lab
        self.hosts = tuple(LabHost(lab, index, holder, files) for index in range(lab.hosts))
        self.faults = Faults(lab, holder)
        self._holder = holder
        self._files = files

    def _build(self) -> None:
        def batch(name: str, tool: str, lines: list[str]) -> None:
            self._holder.run(name, [tool, "-batch", "-"], "\n".join(lines) + "\n")

        batch(FABRIC, "ip", links.switch_lines(self.layout, self._holder.path))
        batch(FABRIC, "bridge", links.all_port_lines(self.layout))
        batch(FABRIC, "tc", links.switch_shapers(self.layout))
        batch(SPINE, "ip", links.spine_lines(self.layout))
        batch(SPINE, "tc", links.spine_shapers(self.layout))
        for index, host in enumerate(self.hosts):
            batch(host.name, "ip", links.host_lines(self.layout, index))
            batch(host.name, "tc", links.host_shapers(self.layout, index))

    @classmethod
    def up(cls, lab: Layout) -> Lab:
        """Builds the lab that outlives this process, until `Lab.find().close()`: there can be one.

        Raises:
            InvalidArgument: it is up already.
            Unsupported: as `Lab` does.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            try:
                listener.bind(NAME)
            except OSError:
                raise InvalidArgument("a lab is up already: `pycomm lab down` removes it") from None
            built = cls.__new__(cls)
            built._begin(lab, listener)
        built._holder.stay(
            {"layout": lab.as_dict(), "files": built._files, "congestion_control": built.congestion_control}
        )
        return built

    @classmethod
    def find(cls) -> Lab:
        """The lab that `up` has built.

        Raises:
            InvalidArgument: there is none.
        """
        _need_root()
        holder, told = Holder.find()
        found = cls.__new__(cls)
        found.congestion_control = told["congestion_control"]
        shape = told["layout"]
        found._become(Layout(**{**shape, "rails": tuple(shape["rails"])}), holder, told["files"])
        return found

    def host(self, name: str) -> LabHost:
        """By its name, such as "h0". Raises InvalidArgument if there is none."""
        return self.hosts[self.layout.host_index(name)]

    def counters(self) -> Counters:
        """What all links have carried until now.

        Raises:
            InvalidArgument: the lab has ended.
        """
        try:
            return counters.read(self.layout, self._holder.pid)
        except (OSError, KeyError):
            raise InvalidArgument("this lab has ended") from None

    def close(self) -> None:
        """Ends every process in the hosts and removes everything. Closing twice is fine."""
        self._holder.end()

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def why_not() -> str:
    """Why no lab can be built here, such as for want of root; "" if one can. It tries."""
    try:
        Lab(1, 1).close()
    except Unsupported as why:
        return str(why)
    return ""


def _order(lab: Layout, congestion_control: str) -> dict[str, Any]:
    host = {**links.HOST_SYSCTLS, "net.ipv4.tcp_congestion_control": congestion_control}
    switches = {FABRIC: links.SWITCH_SYSCTLS, SPINE: links.SPINE_SYSCTLS}
    spaces = [{"name": name, "host": False, "sysctls": _present(own)} for name, own in switches.items()]
    for index in range(lab.hosts):
        spaces.append({"name": layout.host_name(index), "host": True, "sysctls": _present(host)})
    return {"namespaces": spaces, "hosts_file": lab.hosts_file(), "stay_in": FABRIC}


def _present(sysctls: Mapping[str, str]) -> dict[str, str]:
    """Without those of IPv6 on a kernel that has none."""
    has_ipv6 = Path("/proc/sys/net/ipv6").exists()
    return {key: value for key, value in sysctls.items() if has_ipv6 or not key.startswith("net.ipv6.")}


def _need_root() -> None:
    if os.geteuid() != 0:
        raise Unsupported("namespaces and interfaces need root: run this as root, such as with sudo")


def _congestion_control() -> str:
    allowed = ALLOWED.read_text().split()
    return next(name for name in CONGESTION_CONTROLS if name in allowed)


def _memory_file(name: str, text: str) -> int:
    descriptor = os.memfd_create(f"pycomm-lab-{name}")
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, text.encode())
    return descriptor
