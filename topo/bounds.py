"""Lower bounds: times that no algorithm can beat, whatever it does, for the bytes it must move.

N nodes, node i with g_i of the n ranks and K_i NICs; M bytes in the larger of a rank's buffers; b
and v are the rates of a NIC and of a rank inside its node. Latency counts nothing. Where all nodes are alike
these are the usual 2(N-1)/N · M/(K·b) and 2(n-1)/n · M/(b+v) of an all-reduce, (N-1)/N · M·g/(K·b) of an
all-to-all; unlike nodes are counted one by one, for a wide one may do more than its part.

Sums across nodes count the partial width only if every node has two ranks: what one rank contributed can
travel as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pycomm.topo.profile import MEBI, Profile
from pycomm.topo.topology import Topology
from pycomm.topo.traffic import Widths


@dataclass(frozen=True)
class Bound:
    """The least time, and what sets it: the network, or the ranks' own links."""

    ps: int
    by: str


def bound(topology: Topology, profile: Profile, collective: str, elements: int, widths: Widths) -> Bound:
    """The least time of a collective on `elements` elements in the larger of a rank's buffers."""
    n = topology.world_size
    if n == 1:
        return Bound(0, "nothing to move")
    storage = elements * widths.storage
    network = _network_bytes(topology, collective, elements, widths) * profile.network.beta_ps_per_mebibyte
    rates = Fraction(MEBI, profile.local.beta_ps_per_mebibyte)
    if len(topology.nodes) > 1:
        widest = max(place.nics for place in topology.places)
        rates += Fraction(widest * MEBI, profile.network.beta_ps_per_mebibyte)
    own = Fraction(2 * (n - 1), n) if collective == "all_reduce" else Fraction(n - 1, n)
    if collective in ("broadcast", "reduce"):
        own = Fraction(1)
    ranks = int(own * storage / rates)
    nics = int(network / MEBI)
    return Bound(nics, "the NICs") if nics >= ranks else Bound(ranks, "the ranks' links")


def _network_bytes(topology: Topology, collective: str, elements: int, widths: Widths) -> Fraction:
    """Bytes over one NIC of the node that has it hardest."""
    sizes = [len(node) for node in topology.nodes]
    nics = [topology.nics_of(node) for node in range(len(topology.nodes))]
    count, n = len(sizes), topology.world_size
    if count == 1:
        return Fraction(0)
    storage = elements * widths.storage
    summed = elements * (widths.partial if min(sizes) > 1 else widths.storage)
    if collective == "all_reduce":  # every element leaves N-1 nodes in a sum and enters N-1 as a result
        return max(Fraction((count - 1) * (summed + storage), sum(nics)), Fraction(storage, min(nics)))
    if collective in ("broadcast", "reduce"):
        return Fraction(storage if collective == "broadcast" else summed, min(nics))
    moved = summed if collective == "reduce_scatter" else storage
    ranks = sizes if collective == "all_to_all" else [1] * count
    return max(Fraction(moved * g * (n - size), n * k) for g, size, k in zip(ranks, sizes, nics, strict=True))
