"""Links that break, on purpose."""

from __future__ import annotations

from pycomm.lab import layout, links
from pycomm.lab.holder import Holder
from pycomm.lab.layout import FABRIC, Layout

DISABLED, FORWARDING = 0, 3  # BR_STATE_*, linux/if_bridge.h


class Faults:
    """What can happen to the link between a host's NIC and its leaf switch. Each takes effect at once, also
    for traffic under way, and can be repeated.

    A host is given by its index or its name. Wrong hosts, rails and rates raise InvalidArgument.
    """

    def __init__(self, lab: Layout, holder: Holder) -> None:
        self._lab = lab
        self._holder = holder

    def cut(self, host: int | str, rail: int) -> None:
        """The cable is pulled: the NIC sees that its carrier is gone."""
        index = self._lab.nic(host, rail)
        self._port(index, rail, "ip link set {port} down")

    def blackhole(self, host: int | str, rail: int) -> None:
        """The switch drops all that comes and goes, while the NIC sees nothing."""
        index = self._lab.nic(host, rail)
        self._port(index, rail, f"bridge link set dev {{port}} state {DISABLED}")

    def slow(self, host: int | str, rail: int, mbit: float) -> None:
        """The link runs at another rate, in Mbit/s, each way."""
        index = self._lab.nic(host, rail)
        layout.check_mbit(mbit)
        name, port = layout.host_name(index), layout.port_name(index, rail)
        self._holder.run(name, ["tc", *links.shaper(layout.nic_name(rail), mbit).split()])
        self._holder.run(FABRIC, ["tc", *links.shaper(port, mbit).split()])

    def restore(self, host: int | str, rail: int) -> None:
        """The link is as it was built, whatever had happened to it."""
        self.slow(host, rail, self._lab.rate_mbit)
        index = self._lab.nic(host, rail)
        self._port(index, rail, "ip link set {port} up")
        self._port(index, rail, f"bridge link set dev {{port}} state {FORWARDING}")

    def _port(self, host: int, rail: int, command: str) -> None:
        port = layout.port_name(host, rail)
        self._holder.run(FABRIC, command.format(port=port).split())
