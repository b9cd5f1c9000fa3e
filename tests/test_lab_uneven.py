"""Clusters that are no full grid, on real interfaces: all is right, and the bytes go where the plan says."""

import json
import os
import subprocess
import sys

import pytest

from pycomm.lab import Lab, why_not

PROGRAM = """
import json, numpy, pycomm

def data(rank, count):
    return (numpy.arange(count) % 7 + rank).astype(numpy.float32)

with pycomm.init(timeout_s=60) as comm:
    n, me = comm.size, comm.rank
    ranks = range(n)
    right = True
    for count in (1, 5, 4099):
        mine, blocks = data(me, count), data(me, count * n).reshape(n, count)
        total = sum(data(rank, count) for rank in ranks)
        parts = sum(data(rank, count * n).reshape(n, count) for rank in ranks)
        everyone = [data(rank, count) for rank in ranks]
        right &= bool((comm.all_reduce(mine) == total).all())
        right &= bool((comm.reduce_scatter(blocks).reshape(count) == parts[me]).all())
        right &= bool((comm.all_gather(mine) == everyone).all())
        moved = comm.all_to_all(blocks)
        right &= all((moved[rank] == data(rank, count * n).reshape(n, count)[me]).all() for rank in ranks)
        for root in {0, 1, n - 1}:
            right &= bool((comm.broadcast(mine, root) == data(root, count)).all())
            summed = comm.reduce(mine, root)
            right &= summed is None if me != root else bool((summed == total).all())
    comm.barrier()
    plan = comm.plan("all_reduce", 1 << 16)
    before = comm.counters()
    comm.all_reduce(data(me, 1 << 16))
    crossed = comm.counters().cross_rail_bytes - before.cross_rail_bytes
    print(json.dumps({
        "right": right, "sizes": [len(node) for node in comm.topology.nodes], "crossed": crossed,
        "rails": list(comm.topology.rail_numbers), "planned": str(plan.traffic.across(plan.traffic.bytes)),
        "text": plan.explain(),
    }))
"""


WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def run(lab: Lab, nodes: list[list[int | None]]) -> list[dict[str, object]]:
    """One rank for each entry, on the host of its list; the entry is its PYCOMM_RAIL, if any."""
    size = sum(map(len, nodes))
    processes: list[subprocess.Popen[str]] = []
    for host, rails in zip(lab.hosts, nodes, strict=False):
        for local, rail in enumerate(rails):
            place = {
                "RANK": str(len(processes)),
                "WORLD_SIZE": str(size),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(len(rails)),
                "MASTER_ADDR": lab.hosts[0].address,
                "MASTER_PORT": "29500",
            }
            own = {} if rail is None else {"PYCOMM_RAIL": str(rail)}
            environment = {**os.environ, **host.environment(), **place, **own}
            command = [sys.executable, "-c", PROGRAM]
            processes.append(host.popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    answers = []
    for process in processes:
        with process:
            text = process.communicate(timeout=90)[0]
        assert process.returncode == 0
        answers.append(json.loads(text))
    return answers


@pytest.mark.parametrize(
    ("nics", "nodes", "rails", "crosses"),
    [
        ([2, 2, 2], [[None] * 2, [None] * 3, [None]], [0, 1, 0, 1, 0, 0], False),
        ([4, 4], [[None] * 8, [None]], [0, 1, 2, 3, 0, 1, 2, 3, 0], False),
        ([4, 4], [[0, 1], [2, 3]], [0, 1, 2, 3], True),
        ([2, 1], [[None] * 2, [None] * 2], [0, 1, 0, 0], False),
        ([2, 2, 2, 2], [[None] * 2, [None] * 3, [None] * 5, [None] * 7], None, False),
    ],
    ids=["2 + 3 + 1", "8 + 1", "disjoint rails", "a node with one NIC less", "2 + 3 + 5 + 7"],
)
def test_every_collective_is_right_and_bytes_go_as_planned(
    nics: list[int], nodes: list[list[int | None]], rails: list[int] | None, crosses: bool
) -> None:
    with Lab(len(nics), nics, rate_mbit=400) as lab:
        answers = run(lab, nodes)
        spine = lab.counters().spine_bytes
    assert all(answer["right"] for answer in answers)
    assert all(answer["sizes"] == [len(node) for node in nodes] for answer in answers)
    assert rails is None or [answer["rails"] for answer in answers] == [rails] * len(answers)
    crossed = sum(int(str(answer["crossed"])) for answer in answers)
    assert str(crossed) == answers[0]["planned"]
    assert (crossed > 0) == crosses
    if crosses:
        assert spine > crossed  # of the counted call alone
    else:
        assert spine < 20_000  # neighbour discovery and the like
    assert "relay" in str(answers[0]["text"]) or len(set(map(len, nodes))) == 1
