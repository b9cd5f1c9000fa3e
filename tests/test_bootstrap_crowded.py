"""Who may spin: ranks of one kernel count together, whatever nodes they play."""

import math

import pytest

from pycomm.wiring.address_book import Entry, crowded


def entry(rank: int, machine: str, cpus: list[int], quota: float = math.inf) -> Entry:
    return Entry(rank, "1", f"node{rank}", machine, "", 1, cpus, quota, None, {})


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry(0, "k/1", [0, 1]), entry(1, "k/1", [0, 1])], False),
        ([entry(0, "k/1", [0, 1]), entry(1, "k/2", [0, 1]), entry(2, "k/3", [0, 1])], True),
        ([entry(0, "k/1", [0, 1]), entry(1, "other/1", [0, 1]), entry(2, "other/1", [0, 1])], False),
        ([entry(0, "k/1", [0]), entry(1, "k/1", [1])], False),  # pinned, each to its own
        ([entry(0, "k/1", [0]), entry(1, "k/1", [0])], True),  # pinned to the same
        ([entry(0, "k/1", [0, 1]), entry(1, "k/1", [0, 1], 1.5)], True),
    ],
)
def test_ranks_spin_only_with_a_cpu_each(entries: list[Entry], expected: bool) -> None:
    assert crowded(entries, 0) is expected
    assert Entry(**vars(entries[0])).pack()
