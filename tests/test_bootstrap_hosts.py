"""Several hosts, for real: network namespaces have sockets, abstract names and loopbacks of their own."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = """
import numpy as np, pycomm
try:
    with pycomm.init(timeout_s=10) as comm:
        x = comm.all_reduce(np.ones(1000), algorithm="direct")
        kinds = [comm._world.fabric.transport(r) for r in range(comm.size) if r != comm.rank]
        print(comm.topology, *kinds, x[0])
except pycomm.Error as error:
    print(type(error).__name__, error)
"""


def ip(*arguments: str) -> bool:
    try:
        return subprocess.run(["ip", *arguments], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def await_carrier(name: str, link: str) -> None:
    """The kernel may take a second to say that a link is up: net/core/link_watch.c."""
    limit = time.monotonic() + 10
    command = ["ip", "-n", name, "-oneline", "link", "show", link]
    while "state UP" not in subprocess.run(command, capture_output=True, text=True).stdout:
        assert time.monotonic() < limit, f"{link} does not come up"
        time.sleep(0.01)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two namespaces joined by a cable, 10.78.0.1 and 10.78.0.2."""
    names = [f"pycomm{secrets.token_hex(3)}{side}" for side in "ab"]
    try:
        if not all(ip("netns", "add", name) for name in names):
            pytest.skip("needs the right to make network namespaces")
        cable = [
            "link",
            "add",
            "cable0",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "cable1",
            "netns",
            names[1],
        ]
        assert ip(*cable)
        for index, name in enumerate(names):
            assert ip("-n", name, "address", "add", f"10.78.0.{index + 1}/24", "dev", f"cable{index}")
            for link in ("lo", f"cable{index}"):
                assert ip("-n", name, "link", "set", link, "up")
        for index, name in enumerate(names):
            await_carrier(name, f"cable{index}")
        yield names
    finally:
        for name in names:
            ip("netns", "delete", name)


def run(hosts: list[str], **environ: str) -> list[str]:
    """What four ranks, two on each host, print."""
    ranks = []
    for rank in range(4):
        own = {"RANK": str(rank), "WORLD_SIZE": "4", "MASTER_ADDR": "10.78.0.1", "MASTER_PORT": "29511"}
        command = ["ip", "netns", "exec", hosts[rank // 2], sys.executable, "-c", PROGRAM]
        environment = {**os.environ, **own, **environ}
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT))
    return [rank.communicate(timeout=60)[0].strip() for rank in ranks]


def secret_file(folder: Path) -> str:
    path = folder / "secret"
    path.touch(0o600)
    path.write_text(secrets.token_hex(32))
    return str(path)


def test_hosts_are_nodes_and_ranks_of_one_nic_are_on_one_rail(hosts: list[str], tmp_path: Path) -> None:
    topology = "Topology(2 nodes, 4 ranks: node0[0 1:rail0] node1[2 3:rail0])"
    assert run(hosts, PYCOMM_SECRET_FILE=secret_file(tmp_path)) == [
        f"{topology} shm tcp tcp 4.0",
        f"{topology} shm tcp tcp 4.0",
        f"{topology} tcp tcp shm 4.0",
        f"{topology} tcp tcp shm 4.0",
    ]


def test_ranks_of_one_label_that_share_no_memory_are_two_nodes(hosts: list[str], tmp_path: Path) -> None:
    found = run(hosts, PYCOMM_SECRET_FILE=secret_file(tmp_path), PYCOMM_NODE="x")
    assert found[0] == "Topology(2 nodes, 4 ranks: x[0 1:rail0] x/2[2 3:rail0]) shm tcp tcp 4.0"


def test_without_a_secret_the_ranks_elsewhere_say_what_to_set(hosts: list[str]) -> None:
    found = run(hosts, LOCAL_WORLD_SIZE="2")
    for said in found:
        assert said.startswith("InvalidArgument init: the ranks are on several hosts (rank 0 at 10.78.0.1)")
        assert "set PYCOMM_SECRET_FILE" in said
