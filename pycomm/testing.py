"""Ranks as threads of one process, for tests: the same communicators, over memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from pycomm import _C
from pycomm.admission.deadline import Deadline
from pycomm.communicator import Communicator
from pycomm.errors import TimedOut, ranks_text
from pycomm.machine import allow_open_files, usable_cpus
from pycomm.settings import Settings
from pycomm.topo import Topology
from pycomm.world import World

Result = TypeVar("Result")


class _Connected:
    """Threads of one process are connected from the start."""

    def ensure_connected(self, peers: Iterable[int], deadline: Deadline) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to give back."""


def threads(
    ranks: int | Topology,
    function: Callable[[Communicator], Result],
    *,
    timeout_s: float = 30.0,
    settings: Settings | None = None,
) -> list[Result]:
    """Calls `function` on one thread for each rank, with its communicator; returns what they returned.

    Args:
        ranks: How many, on one node; or a topology, whose nodes and rails are then believed, though
            memory is shared.
        function: Gets the communicator of all ranks.
        timeout_s: Deadline of each call, and with a little grace of everything.
        settings: As if read from the environment.

    Raises:
        Whatever the first rank that failed raised; TimedOut where a thread does not end.
    """
    topology = Topology.from_sizes([ranks]) if isinstance(ranks, int) else ranks
    size = topology.world_size
    allow_open_files(size)  # an eventfd each
    results: dict[int, Result] = {}
    errors: list[BaseException] = []

    def run(rank: int, fabric: _C.Fabric) -> None:
        try:
            names = [f"thread {other}" for other in range(size)]
            crowded = size > usable_cpus()
            world = World(fabric, topology, names, crowded, settings or Settings(), _Connected())
            with Communicator(world, tuple(range(size)), 0, timeout_s) as comm:
                results[rank] = function(comm)
        except BaseException as error:
            errors.append(error)

    workers = [
        threading.Thread(target=run, args=(rank, fabric), name=f"rank {rank}", daemon=True)
        for rank, fabric in enumerate(_C.memory_fabrics(size))
    ]
    for worker in workers:
        worker.start()
    limit = Deadline(timeout_s + 10)
    for worker in workers:
        worker.join(limit.left_s())
    stuck = [rank for rank, worker in enumerate(workers) if worker.is_alive()]
    if errors:
        raise errors[0]
    if stuck:
        raise TimedOut(f"{ranks_text(stuck)} of {size} did not end within {limit.text()}")
    return [results[rank] for rank in range(size)]
