"""Links that break, on purpose."""

from __future__ import annotations

from pycomm.lab import layout, links
from pycomm.lab.holder import Holder
from pycomm.lab.layout import FABRIC, Layout


class Faults:
    """What can happen to the link between a host's NIC and its leaf switch. Each takes effect at once, also
    for traffic under way, and can be repeated and combined.

    A host is given by its index or its name. Wrong hosts, rails and rates raise InvalidArgument.
    """

    def __init__(self, lab: Layout, holder: Holder) -> None:
        self._lab = lab
        self._holder = holder

    def cut(self, host: int | str, rail: int) -> None:
        """The cable is pulled: the NIC sees that its carrier is gone."""
        self._switch("ip", f"link set {self._port(host, rail)} down")

    def blackhole(self, host: int | str, rail: int) -> None:
        """All that comes and goes vanishes, while the NIC sees a carrier: its port is on no switch."""
        self._switch("ip", f"link set {self._port(host, rail)} nomaster")

    def slow(self, host: int | str, rail: int, mbit: float) -> None:
        """The link runs at another rate, in Mbit/s, each way."""
        port = self._port(host, rail)
        layout.check_mbit(mbit)
        inside = layout.host_name(self._lab.host_index(host))
        self._holder.run(inside, ["tc", *links.shaper(layout.nic_name(rail), mbit).split()])
        self._switch("tc", links.shaper(port, mbit))

    def restore(self, host: int | str, rail: int) -> None:
        """The link is as it was built, whatever had happened to it."""
        port = self._port(host, rail)
        self.slow(host, rail, self._lab.rate_mbit)
        self._switch("ip", f"link set {port} master leaf{rail} up")
        for line in links.port_lines(port, layout.mac(self._lab.host_index(host), rail)):
            self._switch("bridge", line)

    def _port(self, host: int | str, rail: int) -> str:
        return layout.port_name(self._lab.nic(host, rail), rail)

    def _switch(self, tool: str, line: str) -> None:
        self._holder.run(FABRIC, [tool, *line.split()])
