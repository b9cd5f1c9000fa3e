"""Hundreds of ranks as threads of one process: right sums, errors for all, no descriptor for each pair."""

import os

import numpy as np
import pytest

from pycomm import Communicator, errors
from pycomm.testing import threads
from pycomm.topo import Topology

RANKS = 512


def test_many_threads_sum_right() -> None:
    def descriptors_and_sum(comm: Communicator) -> tuple[int, bool]:
        total = comm.all_reduce(np.full(300, comm.rank, np.float32))
        return len(os.listdir("/proc/self/fd")), bool((total == RANKS * (RANKS - 1) // 2).all())

    found = threads(Topology.grid(RANKS // 8, 8), descriptors_and_sum, timeout_s=100)
    assert all(right for _, right in found)
    assert max(count for count, _ in found) < 4 * RANKS


def test_all_of_many_learn_that_one_disagrees() -> None:
    """More ranks than one look is at."""

    def call(comm: Communicator) -> str:
        with pytest.raises(errors.Mismatch) as caught:
            comm.all_reduce(np.ones(2 if comm.rank == 99 else 1, np.float32), algorithm="ring")
        return str(caught.value)

    assert all("rank 99" in text for text in threads(130, call, timeout_s=60))
