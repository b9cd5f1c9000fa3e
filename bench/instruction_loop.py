"""What `bench instructions` counts: all-reduces of eight bytes between two threads, of one of them.

That one makes each call when the other's message has come, so that it never waits: what it runs is then the
same in each call. The other goes through the method's Python function, which is not where the counting is.
"""

import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from pycomm import Communicator
from pycomm.testing import threads

FOR_EVER_NS = (
    10**13
)  # of yielding: a rank that fell asleep would have to be woken, in some calls and not in others
WARM_UP = 8


class Loop:
    """Both ranks' sides of it."""

    def __init__(self, path: str, calls: int) -> None:
        self._path = path
        self._calls = calls
        self._other: Communicator | None = None
        self._go = threading.Semaphore(0)

    def run(self, comm: Communicator) -> None:
        """One rank: the first is the one that is counted."""
        fabric = comm._world.fabric
        fabric.set_waiting(0, FOR_EVER_NS, FOR_EVER_NS)
        x = np.zeros(2, np.float32)
        slow: Callable[..., object] = Communicator.all_reduce.__wrapped__  # type: ignore[attr-defined]
        op = comm.all_reduce_init(x, out=x)
        if comm.rank == 1:
            self._other = comm
        for _ in range(WARM_UP):
            slow(comm, x, out=x)
        if comm.rank == 1:
            for _ in range(self._calls):
                self._go.acquire()
                slow(comm, x, out=x)
            return
        for _ in range(self._calls):
            before = self._sent()
            self._go.release()
            while self._sent() == before:
                time.sleep(1e-4)
            if self._path == "hot":
                comm.all_reduce(x, out=x)
            else:
                op()

    def _sent(self) -> int:
        assert self._other is not None
        return self._other.counters().peers[0].sent_messages


if __name__ == "__main__":
    threads(2, Loop(sys.argv[1], int(sys.argv[2])).run, timeout_s=300)
