"""The rail lab: what it builds, and that nothing of it is ever left."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pycomm.errors import Error, InvalidArgument
from pycomm.lab import Counters, Lab, LabHost

BYTES = 1 << 20
SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 5000)) as server:
    print("listening", flush=True)
    connection = server.accept()[0]
    total = 0
    while piece := connection.recv(1 << 16):
        total += len(piece)
    print(total)
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[2], 5000), 10, (sys.argv[1], 0)) as connection:
    connection.sendall(bytes(int(sys.argv[3])))
"""


def skip_reason() -> str:
    if os.geteuid() != 0:
        return "a lab needs root"
    try:
        Lab(1, 1).close()
    except Error as why:
        return str(why)
    return ""


WHY_NOT = skip_reason()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts on two rails, and one on the first only."""
    with Lab(3, [2, 2, 1], 200, 100) as built:
        yield built


def output(host: LabHost, *command: str, **options: Any) -> str:
    with host.popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        text = process.communicate(timeout=20)[0]
    assert process.returncode == 0
    return str(text).strip()


def send(lab: Lab, source: tuple[int, int], target: tuple[int, int], size: int = BYTES) -> Counters:
    """What the links carried while `size` bytes went from one (host, rail) to another."""
    near, far = (lab.hosts[host].rail_addresses[rail] for host, rail in (source, target))
    before = lab.counters()
    command = [sys.executable, "-c", SERVER, far]
    with lab.hosts[target[0]].popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        output(lab.hosts[source[0]], sys.executable, "-c", CLIENT, near, far, str(size))
        assert int(server.stdout.read()) == size
    return lab.counters() - before


def test_a_host_has_its_own_name_interfaces_and_files(lab: Lab) -> None:
    for index, host in enumerate(lab.hosts):
        nics = [f"nic{rail}" for rail in range(lab.layout.rails[index])]
        assert output(host, "hostname") == host.name == f"h{index}"
        assert output(host, "ls", "/sys/class/net").split() == ["eth0", "lo", *nics]
        assert output(host, "getent", "hosts", *(h.name for h in lab.hosts)).split()[::2] == [
            h.address for h in lab.hosts
        ]
        assert output(host, "pwd") == os.getcwd()
        environment = host.environment()
        assert environment["PYCOMM_NIC"] == "=" + ",".join(nics)
        topology = json.loads(output(host, "cat", environment["PYCOMM_TOPO_FILE"]))
        assert topology == {
            "format": "pycomm-topology-1",
            "nics": {nic: {"rail": rail, "bit_per_s": 200_000_000} for rail, nic in enumerate(nics)},
        }


@pytest.mark.parametrize("rail", [0, 1])
def test_bytes_along_a_rail_move_its_counters_only(lab: Lab, rail: int) -> None:
    moved = send(lab, (0, rail), (1, rail))
    assert BYTES < moved.sent[0][rail] < 1.03 * BYTES
    assert BYTES < moved.received[1][rail] < 1.03 * BYTES
    assert moved.sent[0][1 - rail] + moved.received[1][1 - rail] + sum(moved.sent[2]) == 0
    assert moved.spine_bytes + sum(moved.spine_down) < 1000  # the question for the peer's MAC is heard by all


def test_bytes_from_rail_to_rail_cross_the_spine(lab: Lab) -> None:
    moved = send(lab, (2, 0), (1, 1))
    assert BYTES < moved.spine_up[0] < 1.03 * BYTES
    assert BYTES < moved.spine_down[1] < 1.03 * BYTES
    assert moved.rail_bytes[0] > BYTES > moved.rail_bytes[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 1), "^0 hosts: a lab has 1 … 64"),
        ((65, 1), "65 hosts"),
        ((2, 17), "17 rails: a host has 1 … 16"),
        ((2, [1, 1, 1]), "rails for 3 hosts are given, but there are 2"),
        ((2, 2, 0.0), "0 Mbit/s"),
        ((2, 2, float("nan")), "nan Mbit/s"),
        ((2, 2, 100.0, 1e9), "1e.09 Mbit/s"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Lab(*arguments)
