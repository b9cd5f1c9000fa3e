"""A barrier that belongs to no library, so that every library's ranks start a timed call alike."""

import mmap
import os
import time
from pathlib import Path

# Where ranks share CPUs, one that waits long leaves them to those that are still in the call.
_YIELDS = 50
_NAP_S = 50e-6
_LINE = 64  # bytes between two ranks' counters: a cache line each


class Barrier:
    """Counters in a file that all ranks map, one a rank; waiting keeps a CPU busy unless told to leave it."""

    def __init__(self, path: Path, rank: int, ranks: int, *, yielding: bool) -> None:
        length = ranks * _LINE
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, length)
            self._counters = memoryview(mmap.mmap(descriptor, length)).cast("q")
        finally:
            os.close(descriptor)
        self._own = rank * _LINE // 8
        self._others = [other * _LINE // 8 for other in range(ranks) if other != rank]
        self._yielding = yielding
        self._passed = 0

    def wait(self) -> None:
        """Returns when all ranks have come. (Where one never comes, the controller ends them all.)"""
        self._passed += 1
        counters, passed = self._counters, self._passed
        counters[self._own] = passed
        turns = 0
        for other in self._others:
            while counters[other] < passed:
                if not self._yielding:
                    continue
                turns += 1
                if turns <= _YIELDS:
                    os.sched_yield()
                else:
                    time.sleep(_NAP_S)
