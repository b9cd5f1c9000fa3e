"""The batches for ip(8), tc(8) and bridge(8) that build a lab: pure text, one function for each namespace."""

from __future__ import annotations

from collections.abc import Callable

from pycomm.lab import layout
from pycomm.lab.layout import Layout

# In a few runs on a busy machine, three flows that left one NIC of 200 Mbit/s shared it less evenly with 8 or
# 16 KiB; at 50 Mbit/s the shares were uneven, up to ten to one, with most sizes. The NIC was always full.
GSO_BYTES = 32768  # the most that TCP hands over at once; a slow link would idle between larger ones
LEAST_BURST_BYTES = 32 * 1024
BURST_S = 0.0015  # of the rate: a timer tick must not leave the bucket full
QUEUE_S = 0.010  # of the rate: the switch's buffer, beyond the burst
TABLE = 100  # + rail: the routing table of what leaves from that NIC's address
PRIORITY = 1000  # + rail

HOST_SYSCTLS = {
    "net.ipv6.conf.default.disable_ipv6": "1",  # but loopback's: neighbour discovery would reach the spine
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv4.conf.all.arp_ignore": "1",  # a NIC answers for its own address only,
    "net.ipv4.conf.all.arp_announce": "2",  # and asks with its own
    "net.ipv4.tcp_slow_start_after_idle": "0",
    "net.ipv4.tcp_no_metrics_save": "1",
}
SWITCH_SYSCTLS = {
    "net.ipv6.conf.default.disable_ipv6": "1",
    "net.ipv6.conf.all.disable_ipv6": "1",
}
SPINE_SYSCTLS = SWITCH_SYSCTLS | {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv4.conf.all.send_redirects": "0",
}


def shaper(device: str, mbit: float, verb: str = "replace") -> str:
    """A line for tc: a token bucket on what leaves through `device`."""
    rate = mbit * 1e6 / 8
    burst = max(LEAST_BURST_BYTES, round(rate * BURST_S))
    limit = burst + round(rate * QUEUE_S)
    return f"qdisc {verb} dev {device} root tbf rate {round(mbit * 1e6)}bit burst {burst} limit {limit}"


def switch_lines(lab: Layout, path: Callable[[str], str]) -> list[str]:
    """For ip, in the fabric's namespace: switches, cables, ports. `path` gives a namespace's file."""
    bridge = "type bridge forward_delay 0 mcast_snooping 0"
    lines = [f"link add mgmt {bridge}", "link set mgmt up"]
    for rail in range(lab.leaves):
        up = layout.uplink_name(rail)
        lines += [
            f"link add leaf{rail} {bridge}",
            f"link set leaf{rail} up",
            f"link add {up} type veth peer name down{rail} "
            f"address {layout.gateway_mac(rail)} netns {path(layout.SPINE)}",
            f"link set {up} master leaf{rail} up",
        ]
    for host in range(lab.hosts):
        inside = path(layout.host_name(host))
        lines += [
            f"link add eth0 netns {inside} type veth peer name h{host}m",
            f"link set h{host}m master mgmt up",
        ]
        for rail in range(lab.rails[host]):
            port = layout.port_name(host, rail)
            lines += [
                f"link add {layout.nic_name(rail)} address {layout.mac(host, rail)} gso_max_size {GSO_BYTES} "
                f"netns {inside} type veth peer name {port}",
                f"link set {port} master leaf{rail} up",
            ]
    return lines


def port_lines(port: str, mac: str) -> list[str]:
    """For bridge, in the fabric's namespace: the leaf knows who is at a port, so that no frame is flooded to
    where it does not belong, and what the counters of the up-links show is meant for the spine.
    """
    return [
        f"link set dev {port} learning off flood off mcast_flood off",
        f"fdb replace {mac} dev {port} master static",
    ]


def all_port_lines(lab: Layout) -> list[str]:
    """The same for all ports of all leaves."""
    ports = [(layout.uplink_name(rail), layout.gateway_mac(rail)) for rail in range(lab.leaves)]
    for host in range(lab.hosts):
        ports += [(layout.port_name(host, r), layout.mac(host, r)) for r in range(lab.rails[host])]
    return [line for port, mac in ports for line in port_lines(port, mac)]


def switch_shapers(lab: Layout) -> list[str]:
    """For tc, in the fabric's namespace: what leaf switches send to hosts and to the spine."""
    ports = [layout.port_name(h, r) for h in range(lab.hosts) for r in range(lab.rails[h])]
    down = [shaper(port, lab.rate_mbit, "add") for port in ports]
    return down + [shaper(layout.uplink_name(rail), lab.spine_mbit, "add") for rail in range(lab.leaves)]


def spine_lines(lab: Layout) -> list[str]:
    """For ip, in the spine's namespace."""
    lines = []
    for rail in range(lab.leaves):
        lines += [f"addr add {layout.gateway(rail)}/24 dev down{rail}", f"link set down{rail} up"]
    return lines


def spine_shapers(lab: Layout) -> list[str]:
    """For tc, in the spine's namespace."""
    return [shaper(f"down{rail}", lab.spine_mbit, "add") for rail in range(lab.leaves)]


def host_lines(lab: Layout, host: int) -> list[str]:
    """For ip, in a host's namespace: addresses, and routes such that what is sent from a NIC's address leaves
    through that NIC, to its own rail over the leaf, to another one over the spine.
    """
    lines = ["link set lo up", f"addr add {layout.address(host)}/16 dev eth0", "link set eth0 up"]
    for rail in range(lab.rails[host]):
        nic, own, table = layout.nic_name(rail), layout.rail_address(host, rail), TABLE + rail
        lines += [
            f"addr add {own}/24 dev {nic}",
            f"link set {nic} up",
            f"route add 10.77.{rail}.0/24 dev {nic} src {own} table {table}",
            f"route add 10.77.0.0/16 via {layout.gateway(rail)} dev {nic} src {own} table {table}",
            f"rule add from {own} table {table} priority {PRIORITY + rail}",
        ]
    # From a socket without a source address to a rail that this host is not on: from the first NIC.
    return [*lines, f"route add 10.77.0.0/16 via {layout.gateway(0)} dev {layout.nic_name(0)}"]


def host_shapers(lab: Layout, host: int) -> list[str]:
    """For tc, in a host's namespace."""
    return [shaper(layout.nic_name(rail), lab.rate_mbit, "add") for rail in range(lab.rails[host])]
