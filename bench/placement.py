"""Where the ranks of a job run in a lab: on which host, by which NIC."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pycomm.lab import Lab
from pycomm.topo.topology import Place, Topology

PORT = 29500  # what torchrun takes by default


@dataclass(frozen=True)
class Placement:
    """The host of each rank. The i-th rank of a host has NIC i for its own, and so is on rail i.

    `settings` are pycomm's beyond those that the lab makes.
    """

    lab: Lab
    hosts: tuple[int, ...]
    port: int = PORT
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def rails(self) -> tuple[int, ...]:
        """The rail of each rank: its place among the ranks of its host."""
        return topology(self.hosts).rail_numbers

    def environment(self, rank: int) -> dict[str, str]:
        """The variables that torchrun would set for a rank."""
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(self.hosts)),
            "LOCAL_RANK": str(self.rails[rank]),
            "LOCAL_WORLD_SIZE": str(Counter(self.hosts)[self.hosts[rank]]),
            "MASTER_ADDR": self.lab.hosts[self.hosts[0]].address,
            "MASTER_PORT": str(self.port),
        }


def topology(hosts: Sequence[int]) -> Topology:
    """Such ranks as the planner sees them."""
    seen: Counter[int] = Counter()
    places = []
    for host in hosts:
        places.append(Place(f"h{host}", seen[host]))
        seen[host] += 1
    return Topology(places)


def in_order(sizes: Sequence[int]) -> tuple[int, ...]:
    """The host of each rank, host by host, for so many ranks on each."""
    return tuple(host for host, size in enumerate(sizes) for _ in range(size))


def shuffled(sizes: Sequence[int], seed: int) -> tuple[int, ...]:
    """The same ranks in an order that has nothing to do with where they are."""
    hosts = list(in_order(sizes))
    random.Random(seed).shuffle(hosts)
    return tuple(hosts)
