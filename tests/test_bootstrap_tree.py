"""The rendezvous of more than 64 ranks: a tree that names the same culprits as a flat one would."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycomm import errors
from pycomm.admission.deadline import Deadline
from pycomm.admission.door import knock
from pycomm.admission.handshake import Dialer, Identity
from pycomm.bootstrap.bootstrap import Bootstrap
from pycomm.bootstrap.rendezvous import GRACE_S, Guest, Host
from pycomm.bootstrap.seats import FANOUT, FLAT, SPARE, Caller, Seats
from pycomm.bootstrap.visit import Visit, pause

ROOT = Path(__file__).parent.parent
SECRET = b"s" * 32


class Job:
    """A host at a port of its own, and guests as threads."""

    def __init__(self, size: int, timeout_s: float = 60.0) -> None:
        self.size = size
        self.deadline = Deadline(timeout_s)
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address: tuple[str, int] = listener.getsockname()
        self.host = Host(self.identity(0), [listener], self.deadline)
        self.guests: dict[int, Guest] = {}
        self.results: dict[int, Any] = {}
        self.threads: list[threading.Thread] = []

    def identity(self, rank: int) -> Identity:
        return Identity("job", rank, self.size, SECRET)

    def guest(self, rank: int, size: int | None = None) -> Guest:
        visit, identity = Visit(self.deadline), Identity("job", rank, size or self.size, SECRET)
        for attempt in range(1000):
            try:
                return visit.attempt(identity, [self.address])
            except errors.Error:
                raise
            except ConnectionError:
                pause(attempt, self.deadline)
        raise AssertionError("never came in")

    def start(self, ranks: list[int], then: Callable[[Bootstrap], Any]) -> None:
        """Lets them come, one after another, and go on as threads."""
        for rank in ranks:
            if rank:
                self.guests[rank] = self.guest(rank)
        for rank in ranks:
            thread = threading.Thread(target=self._run, args=(rank, then))
            thread.start()
            self.threads.append(thread)

    def _run(self, rank: int, then: Callable[[Bootstrap], Any]) -> None:
        bootstrap = self.guests[rank] if rank else self.host
        try:
            if rank == 0:
                self.host.wait()
            self.results[rank] = then(bootstrap)
        except errors.Error as error:
            self.results[rank] = error
        finally:
            bootstrap.close()

    def hurry(self) -> None:
        """The deadline is a second from now, for those who have come."""
        self.host._deadline = Deadline(1.0)
        for guest in self.guests.values():
            guest._deadline, guest._timeout = Deadline(1.0 + GRACE_S), "1 s"

    def end(self) -> dict[int, Any]:
        for thread in self.threads:
            thread.join(30)
        return self.results

    def inner(self) -> list[int]:
        """The guests that have guests of their own."""
        parents = Counter(self.host._seats._parents.values())
        return sorted(rank for rank in parents if rank)

    def leaf(self) -> int:
        """One that sits with another guest."""
        return next(rank for rank, parent in self.host._seats._parents.items() if parent)


def gather(bootstrap: Bootstrap) -> list[bytes]:
    return bootstrap.all_gather(b"%d" % bootstrap.rank * (1 + bootstrap.rank % 3))


def gather_twice(bootstrap: Bootstrap) -> list[bytes]:
    assert gather(bootstrap) == gather(bootstrap)
    return gather(bootstrap)


@pytest.mark.parametrize("size", [64, 65, 70, 130])
def test_every_rank_gets_every_payload(size: int) -> None:
    job = Job(size)
    lines = {}

    def run(bootstrap: Bootstrap) -> list[bytes]:
        found = gather_twice(bootstrap)
        assert isinstance(bootstrap, Host | Guest)
        lines[bootstrap.rank] = len(bootstrap._lines.ranks())
        return found

    job.start(list(range(size)), run)
    found = job.end()
    assert [found[rank] for rank in range(size)] == [[b"%d" % r * (1 + r % 3) for r in range(size)]] * size
    assert max(lines.values()) <= (FANOUT + 1 if size > FLAT else FLAT - 1)
    assert bool(job.inner()) == (size > FLAT)


def expect(job: Job, ranks: set[int], kind: type[errors.Error], text: str) -> None:
    found = job.end()
    assert set(found) == ranks
    for rank in ranks:
        assert isinstance(found[rank], kind), (rank, found[rank])
        assert text in str(found[rank]), rank


def test_late_ranks_are_named_to_all() -> None:
    job = Job(70)
    ranks = [rank for rank in range(70) if rank not in (7, 69)]
    job.start(ranks[1:], gather)
    job.hurry()
    job.start([0], gather)
    expect(job, set(ranks), errors.TimedOut, "ranks 7 and 69 of 70 had not come after 1 s")


@pytest.mark.parametrize("which", ["leaf", "inner"])
def test_a_silent_rank_alone_is_named(which: str) -> None:
    """Behind a silent inner rank others are not heard either: they are not to blame."""
    job = Job(70)
    over = threading.Event()
    silent = -1

    def run(bootstrap: Bootstrap) -> Any:
        if bootstrap.rank == silent:
            return over.wait(20)
        return gather(bootstrap)

    started = threading.Event()
    job.start(list(range(1, 70)), lambda bootstrap: run(bootstrap) if started.wait(20) else None)
    silent = job.leaf() if which == "leaf" else job.inner()[0]
    job.hurry()
    started.set()
    job.start([0], gather)
    while len(job.results) < 69:  # those below a silent parent hear nothing, and find out by themselves
        time.sleep(0.01)
    over.set()
    found = job.end()
    assert f"init: rank {silent} of 70 came, then said nothing" in str(found[0])
    for rank in set(range(70)) - {silent}:
        assert f"rank {silent} of 70 came, then said nothing" in str(found[rank]), rank


def test_who_stops_in_mid_message_is_named() -> None:
    job = Job(70)
    over = threading.Event()
    stops = threading.Event()

    def run(bootstrap: Bootstrap) -> Any:
        stops.wait(20)
        if isinstance(bootstrap, Guest) and bootstrap.rank == stopped:
            bootstrap._lines._socks[bootstrap._parent].sendall(b"\0\0\1\0D")
            return over.wait(20)
        return gather(bootstrap)

    job.start(list(range(1, 70)), run)
    stopped = job.leaf()
    job.hurry()
    stops.set()
    job.start([0], gather)
    job.threads[-1].join(20)
    over.set()
    ranks = set(range(70)) - {stopped}
    found = job.end()
    for rank in ranks:
        assert f"init: rank {stopped} of 70 stopped in mid-message; 1 s" in str(found[rank]), rank


def test_a_rank_that_leaves_is_named_to_all() -> None:
    job = Job(70)
    go = threading.Event()

    def run(bootstrap: Bootstrap) -> Any:
        gather(bootstrap)
        go.wait(20)
        return "gone" if bootstrap.rank == leaver else gather(bootstrap)

    job.start(list(range(1, 70)), run)
    leaver = job.leaf()
    job.start([0], run)
    go.set()
    found = job.end()
    assert found.pop(leaver) == "gone"
    assert set(found) == set(range(70)) - {leaver}
    for error in found.values():
        assert isinstance(error, errors.PeerLost)
        assert f"rank {leaver} of 70 left before all had met" in str(error)


KILLED = """
import sys, time
from pycomm.admission.deadline import Deadline
from pycomm.admission.handshake import Identity
from pycomm.bootstrap.visit import Visit
guest = Visit(Deadline(30)).attempt(Identity("job", 5, 70, b"s" * 32), [("127.0.0.1", int(sys.argv[1]))])
print(guest.all_gather(b"5") and "met", flush=True)
time.sleep(60)
"""


def test_a_killed_inner_rank_is_named_to_all() -> None:
    job = Job(70)
    command = [sys.executable, "-c", KILLED, str(job.address[1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        while 5 not in job.host._seats._parents:  # who comes first gets guests of its own
            time.sleep(0.01)

        def run(bootstrap: Bootstrap) -> Any:
            bootstrap.all_gather(b"")
            return bootstrap.all_gather(b"")

        ranks = [rank for rank in range(70) if rank != 5]
        job.start(ranks, run)
        assert process.stdout is not None
        assert process.stdout.readline() == "met\n"
        process.send_signal(signal.SIGKILL)
        assert 5 in job.inner()
        expect(job, set(ranks), errors.PeerLost, "rank 5 of 70 left before all had met")


def test_a_second_rank_of_a_number_and_one_of_another_size_are_refused() -> None:
    job = Job(70)
    job.start(list(range(1, 69)), gather)
    leaf = job.leaf()
    with pytest.raises(errors.InvalidArgument, match=f"there are two ranks {leaf}: give each its own"):
        job.guest(leaf)
    with pytest.raises(errors.Mismatch, match="rank 69 was started as one of 71, rank 0 as one of 70"):
        job.guest(69, size=71)
    job.start([69, 0], gather)
    assert len({str(found) for found in job.end().values()}) == 1


def test_what_rank_0_finds_wrong_is_raised_by_all() -> None:
    def merge(payloads: list[bytes]) -> bytes:
        raise errors.Mismatch(f"init: rank {payloads.index(b'odd')} is odd")

    job = Job(70)
    job.start(list(range(70)), lambda b: b.exchange(b"odd" if b.rank == 68 else b"", merge))
    expect(job, set(range(70)), errors.Mismatch, "init: rank 68 is odd")


def test_strangers_at_an_inner_door_are_dropped() -> None:
    job = Job(70)
    job.start(list(range(1, 69)), gather)
    for inner in job.inner():
        at = job.host._seats._callers[inner].at
        assert at is not None
        for said in [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\0\0\0\2{}", b""]:
            with socket.create_connection(at, 5) as stranger:
                stranger.sendall(said)
                with contextlib.suppress(OSError):
                    stranger.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionError):
                    assert stranger.recv(1) == b""
        with socket.create_connection(at, 5) as stranger, pytest.raises(ConnectionError):
            knock(stranger, Dialer(Identity("job", 69, 70, b"x" * 32), "rendezvous", inner), Deadline(5))
    job.start([69, 0], gather)
    assert all(isinstance(found, list) for found in job.end().values())


def test_who_cannot_reach_its_parent_gets_another() -> None:
    """Rank 1 comes first and says that it listens where nobody does."""
    job = Job(70)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    line = socket.create_connection(job.address, 5)
    knock(line, Dialer(job.identity(1), "rendezvous", 0, f"token {port}"), Deadline(5))
    while 1 not in job.host._seats._parents:
        time.sleep(0.001)
    while line.recv(1 << 12)[-1:] != b"}":
        pass
    job.guests[1] = Guest(job.identity(1), None, (0, line), None, job.deadline)
    job.start(list(range(2, 70)), gather)
    thread = threading.Thread(target=job._run, args=(1, gather))
    thread.start()
    job.threads.append(thread)
    job.start([0], gather)
    assert all(isinstance(found, list) for found in job.end().values())
    assert 1 not in job.inner()


def test_who_comes_after_rank_0_has_failed_is_told_soon() -> None:
    job = Job(70, timeout_s=0.3)
    visit = Visit(Deadline(60))
    visit.answered = job.address
    job.start([0], gather)
    job.end()
    with pytest.raises(errors.PeerLost, match="rank 0 of 70 left before all had met"):
        visit.attempt(job.identity(1), [job.address])


@given(st.integers(65, 300), st.data())
def test_seats(size: int, data: st.DataObject) -> None:
    """Parents come before their children, are reachable, and have few; two levels are enough here."""
    order = data.draw(st.permutations(range(1, size)))
    near = {rank for rank in order if data.draw(st.booleans())}
    seats = Seats(size)
    level = {0: 0}
    children: Counter[int] = Counter()
    for rank in order:
        seat = seats.place(Caller(rank, "token", ("host", rank), rank in near))
        assert seat.parent in level
        assert seat.parent == 0 or seat.at == ("host", seat.parent)
        assert seat.parent not in near or rank in near
        level[rank] = level[seat.parent] + 1
        children[seat.parent] += 1
        assert seat.inner or rank not in seats._free
    assert children.pop(0) <= FANOUT + SPARE
    assert max(children.values()) <= FANOUT
    assert max(level.values()) <= 3
    deepest = max(level, key=lambda rank: level[rank])
    assert seats.blamed({deepest}) == [deepest]
    assert seats.blamed(set(order)) == sorted(rank for rank in order if level[rank] == 1)
