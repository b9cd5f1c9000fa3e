"""Bytes that the lab's links have carried, as the kernel counts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pycomm.lab import layout
from pycomm.lab.layout import Layout

RX_BYTES, TX_BYTES = 0, 8  # columns of /proc/net/dev, see proc_pid_net(5)


@dataclass(frozen=True)
class Counters:
    """Bytes since the lab was built, with Ethernet, IP and TCP headers; the difference of two is what went
    between them. A segment that is cut only behind the NIC has its headers counted once.
    """

    sent: tuple[tuple[int, ...], ...]
    """By host and rail: what left through the NIC."""

    received: tuple[tuple[int, ...], ...]
    """By host and rail: what arrived at the NIC."""

    spine_up: tuple[int, ...]
    """By rail: what the leaf sent up to the spine."""

    spine_down: tuple[int, ...]
    """By rail: what the spine sent down to the leaf."""

    @property
    def rail_bytes(self) -> tuple[int, ...]:
        """By rail: what all hosts sent."""
        return tuple(
            sum(host[rail] for host in self.sent if rail < len(host)) for rail in range(len(self.spine_up))
        )

    @property
    def spine_bytes(self) -> int:
        """What crossed from one rail to another."""
        return sum(self.spine_up)

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(
            tuple(map(_minus, self.sent, earlier.sent)),
            tuple(map(_minus, self.received, earlier.received)),
            _minus(self.spine_up, earlier.spine_up),
            _minus(self.spine_down, earlier.spine_down),
        )


def _minus(later: tuple[int, ...], earlier: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(later, earlier, strict=True))


def read(lab: Layout, pid: int) -> Counters:
    """Of the fabric whose network namespace process `pid` is in. A port receives what its NIC has sent."""
    ports = _ports(Path(f"/proc/{pid}/net/dev").read_text())

    def of_hosts(column: int) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(ports[layout.port_name(host, rail)][column] for rail in range(rails))
            for host, rails in enumerate(lab.rails)
        )

    def of_uplinks(column: int) -> tuple[int, ...]:
        return tuple(ports[layout.uplink_name(rail)][column] for rail in range(lab.leaves))

    return Counters(of_hosts(RX_BYTES), of_hosts(TX_BYTES), of_uplinks(TX_BYTES), of_uplinks(RX_BYTES))


def _ports(text: str) -> Mapping[str, list[int]]:
    """The columns of /proc/net/dev by interface."""
    rows = (line.partition(":") for line in text.splitlines()[2:])
    return {name.strip(): [int(word) for word in values.split()] for name, _, values in rows}
