"""Does a lab's network do what it was built for? Fills its links and reads the kernel's counters."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pycomm.errors import Error
from pycomm.lab import traffic
from pycomm.lab.counters import Counters
from pycomm.lab.lab import Lab
from pycomm.lab.rates import rate_text

WARM_UP_S = 0.7  # TCP finds the rate of a link within some tens of milliseconds; processes start meanwhile
MEASURE_S = 1.5
LEAST_SHARE, MOST_SHARE = 0.85, 1.03  # of the rate; headers count, and a bucket may be full when we begin

Place = tuple[int, int]
"""Host and rail."""


@dataclass(frozen=True)
class Finding:
    """One measurement: what flowed, the least and the most Mbit/s of all links looked at, what was wanted."""

    title: str
    least_mbit: float
    most_mbit: float
    wanted_mbit: float

    @property
    def good(self) -> bool:
        """True if it is what the lab promises."""
        return (
            self.least_mbit >= LEAST_SHARE * self.wanted_mbit
            and self.most_mbit <= MOST_SHARE * self.wanted_mbit
        )

    def __str__(self) -> str:
        span = f"{self.least_mbit:.0f}"
        if round(self.most_mbit) != round(self.least_mbit):
            span += f" … {self.most_mbit:.0f}"
        verdict = "ok" if self.good else "NOT as built"
        return f"{self.title:<58} {span:>13} of {rate_text(self.wanted_mbit):<11} {verdict}"


def check(lab: Lab) -> Iterator[Finding]:
    """Measures one NIC alone, all NICs at once, and what crosses the spine; some seconds.

    Raises:
        Error: a process of it failed.
    """
    rate, spine = lab.layout.rate_mbit, lab.layout.spine_mbit
    along, across = _along_rails(lab), _across(lab)
    for flows, title in (
        (along[:1], "one NIC alone, to another host on its rail"),
        (along, f"each NIC, when all {len(along)} send along their rails"),
    ):
        if flows:
            moved, seconds = _measure(lab, flows)
            rates = [_mbit(moved.sent[host][rail], seconds) for (host, rail), _ in flows]
            yield Finding(title, min(rates), max(rates), rate)
    if across:
        moved, seconds = _measure(lab, across)
        crossed = _mbit(moved.spine_up[0], seconds)
        title = f"rail 0's up-link, when {len(across)} NICs of rail 0 send to rail 1"
        yield Finding(title, crossed, crossed, min(spine, rate * len({target for _, target in across})))


def _along_rails(lab: Lab) -> list[tuple[Place, Place]]:
    """From every NIC to the next host's on the same rail."""
    flows = []
    for rail in range(lab.layout.leaves):
        members = [host for host, rails in enumerate(lab.layout.rails) if rails > rail]
        if len(members) > 1:
            turned = members[1:] + members[:1]
            flows += [((a, rail), (b, rail)) for a, b in zip(members, turned, strict=True)]
    return flows


def _across(lab: Lab) -> list[tuple[Place, Place]]:
    """From rail 0 of every host to rail 1 of one that is on it: the next, else the first such."""
    on_rail_1 = [host for host, rails in enumerate(lab.layout.rails) if rails > 1]
    flows = []
    for host in range(lab.layout.hosts):
        targets = [other for other in on_rail_1 if other > host] + [
            other for other in on_rail_1 if other < host
        ]
        flows += [((host, 0), (other, 1)) for other in targets[:1]]
    return flows


def _measure(lab: Lab, flows: Sequence[tuple[Place, Place]]) -> tuple[Counters, float]:
    """What the links carry while all flows run, and in how many seconds."""
    with _running(lab, flows):
        time.sleep(WARM_UP_S)
        began, before = time.monotonic(), lab.counters()
        time.sleep(MEASURE_S)
        return lab.counters() - before, time.monotonic() - began


@contextlib.contextmanager
def _running(lab: Lab, flows: Sequence[tuple[Place, Place]]) -> Iterator[None]:
    orders: list[dict[str, list[object]]] = [{"listen": [], "send": []} for _ in lab.hosts]
    for (sender, rail), (receiver, far_rail) in flows:
        near, far = lab.hosts[sender].rail_addresses[rail], lab.hosts[receiver].rail_addresses[far_rail]
        orders[sender]["send"].append([near, far])
        if far not in orders[receiver]["listen"]:
            orders[receiver]["listen"].append(far)
    with contextlib.ExitStack() as processes:
        running = []
        for host, order in zip(lab.hosts, orders, strict=True):
            command = [sys.executable, "-I", "-S", traffic.__file__, json.dumps(order)]
            process = host.popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            running.append(processes.enter_context(process))
            processes.callback(process.kill)
        for process in running:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise Error("a receiver did not start; its own words are above")
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        yield


def _mbit(moved_bytes: int, seconds: float) -> float:
    return moved_bytes * 8 / 1e6 / seconds
