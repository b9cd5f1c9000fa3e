"""Links of a lab that fail while a collective is under way: with another NIC it goes on, to the same bits."""

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from pycomm.lab import Lab, why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

PROGRAM = """
import json, sys, time, numpy, pycomm
timeout_s, calls = float(sys.argv[1]), int(sys.argv[2])
with pycomm.init(timeout_s=60) as comm:
    x = (numpy.arange(1 << 20) % 1000 * (comm.rank + 1)).astype(numpy.float32)
    total = comm.all_reduce(x)
    expected = (numpy.arange(1 << 20) % 1000 * 3).astype(numpy.float32)
    print("ready", flush=True)
    right, error, begin = bool((total == expected).all()), "", time.monotonic()
    try:
        for _ in range(calls):
            right &= comm.all_reduce(x, timeout_s=timeout_s).tobytes() == total.tobytes()
    except pycomm.Error as why:
        error = f"{type(why).__name__}: {why}"
    links = [link.lost for link in comm._world.fabric.links(1 - comm.rank)]
    print(json.dumps({"right": right, "error": error, "links": links, "took_s": time.monotonic() - begin}))
"""

# What is small is sent at once, over one link or the other, and rank 0 leaves without hearing of it.
LEAVING = """
import json, time, numpy, pycomm
with pycomm.init(timeout_s=60) as comm:
    parts = [comm.split(0) for _ in range(4)]
    for part in parts:
        part.barrier()
    print("ready", flush=True)
    time.sleep(1)
    x = numpy.full(700, 7 if comm.rank == 0 else 0, numpy.float32)
    error, right = "", True
    try:
        works = [part.broadcast(x, async_op=True, timeout_s=10) for part in parts]
        right = all((work.wait() == 7).all() for work in works)
    except pycomm.Error as why:
        error = f"{type(why).__name__}: {why}"
print(json.dumps({"right": right, "error": error}))
"""


def start(lab: Lab, program: str, *arguments: str) -> list[subprocess.Popen[str]]:
    """One rank on each of two hosts, which has all of the host's NICs."""
    ranks = []
    for rank, host in enumerate(lab.hosts):
        place = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": lab.hosts[0].address,
            "MASTER_PORT": "29500",
        }
        command = [sys.executable, "-c", program, *arguments]
        environment = {**os.environ, **host.environment(), **place}
        ranks.append(host.popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    for process in ranks:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return ranks


def answers(ranks: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    found = []
    for process in ranks:
        with process:
            found.append(json.loads(process.communicate(timeout=60)[0]))
    return found


@pytest.mark.parametrize("fault", ["cut", "blackhole"])
def test_a_rail_that_fails_is_not_missed_where_there_is_another(fault: str) -> None:
    with Lab(2, 2, rate_mbit=200) as lab:
        ranks = start(lab, PROGRAM, "30", "15")  # calls of 4 MiB: about 0.1 s each with two NICs
        time.sleep(0.5)
        getattr(lab.faults, fault)("h1", 1)
        found = answers(ranks)
    for answer in found:
        assert answer["error"] == ""
        assert answer["right"]
        alive, lost = map(str, answer["links"])
        assert alive == ""
        assert "let nothing through" in lost or "given up by the peer" in lost


@pytest.mark.parametrize("rail", [0, 1])
def test_what_was_sent_over_a_dead_rail_is_not_lost_when_its_sender_leaves(rail: int) -> None:
    with Lab(2, 2, rate_mbit=200) as lab:
        ranks = start(lab, LEAVING)
        lab.faults.blackhole("h1", rail)
        found = answers(ranks)
    assert found == [{"right": True, "error": ""}] * 2


def test_the_only_rail_that_fails_ends_the_call_by_its_deadline() -> None:
    with Lab(2, 1, rate_mbit=200) as lab:
        ranks = start(lab, PROGRAM, "3", "30")
        time.sleep(0.5)
        lab.faults.blackhole("h1", 0)
        found = answers(ranks)
    for rank, answer in enumerate(found):
        assert answer["right"]
        assert str(answer["error"]).startswith("TimedOut")
        assert f"rank {1 - rank} (" in str(answer["error"])
