"""What a launcher tells each rank."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pycomm.machine import usable_cpus


def rank_variables(sizes: Sequence[int], address: str, port: int) -> list[dict[str, str]]:
    """The variables that torchrun sets, for each rank, node by node.

    Args:
        sizes: Ranks on each node.
        address: Where rank 0 can be found.
        port: Where it listens.
    """
    total = sum(sizes)
    threads = max(1, usable_cpus() // total)
    common = {
        "WORLD_SIZE": str(total),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),  # else every rank takes all cores
    }
    places = [(local, size) for size in sizes for local in range(size)]
    return [
        {**common, "RANK": str(rank), "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(size)}
        for rank, (local, size) in enumerate(places)
    ]
