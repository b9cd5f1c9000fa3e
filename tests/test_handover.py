"""Handing memory over inside a node: in batches, between those who may, within the limit on open files."""

import os
import secrets
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pycomm.admission.deadline import Deadline
from pycomm.wiring import handover
from pycomm.wiring.handover import MOST_DESCRIPTORS, Handed

ROOT = Path(__file__).parent.parent
RANKS = 100  # more than fit into one message


def make(rank: int) -> Handed:
    """Three files that can be told apart; every third rank has no pidfd."""
    files = [os.memfd_create(f"{rank} {which}") for which in range(3)]
    if rank % 3 == 0:
        os.close(files.pop())
        files.append(-1)
    return Handed(*files)


def names(handed: Handed) -> list[str]:
    return [os.readlink(f"/proc/self/fd/{each}") for each in handed.descriptors()]


def test_every_member_gets_what_all_others_have() -> None:
    """With few descriptors under way at a time, as where the limit on open files is low."""
    handed = {rank: make(rank) for rank in range(RANKS)}
    before = len(os.listdir("/proc/self/fd"))
    pairs = {rank: socket.socketpair() for rank in (1, 50, 99)}
    found: dict[int, dict[int, list[str]]] = {}

    def member(rank: int) -> None:
        got = handover.receive(pairs[rank][1], RANKS - 1, Deadline(10))
        found[rank] = {other: names(each) for other, each in got.items()}
        for each in got.values():
            each.close()

    threads = [threading.Thread(target=member, args=(rank,)) for rank in pairs]
    for thread in threads:
        thread.start()
    handover.hand_on(
        {rank: pair[0] for rank, pair in pairs.items()}, handed, MOST_DESCRIPTORS + 10, Deadline(10)
    )
    for thread in threads:
        thread.join(10)
    for pair in pairs.values():
        for sock in pair:
            sock.close()
    for rank in pairs:
        assert found[rank] == {other: names(each) for other, each in handed.items() if other != rank}
    assert len(os.listdir("/proc/self/fd")) == before
    for each in handed.values():
        each.close()


def test_a_leader_that_leaves_and_one_that_is_silent() -> None:
    here, there = socket.socketpair()
    with there:
        with here, pytest.raises(TimeoutError):
            handover.receive(there, 1, Deadline(0.05))
        with pytest.raises(ConnectionError):
            handover.receive(there, 1, Deadline(5))


PROGRAM = """
import encodings.idna, os, resource, sys  # what is imported late may not be readable by another user
import numpy as np, pycomm
soft, hard, user = map(int, sys.argv[1:])
if soft:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
if user:
    os.setgid(user)
    os.setuid(user)
try:
    with pycomm.init(timeout_s=20) as comm:
        x = comm.all_reduce(np.ones(1000), algorithm="direct")
        kinds = [comm._world.fabric.transport(r) for r in range(comm.size) if r != comm.rank]
        print([len(node) for node in comm.topology.nodes], *kinds, x[0])
except pycomm.Error as error:
    print(type(error).__name__, error)
"""


def run(folder: Path, *ranks: tuple[int, int, int]) -> list[str]:
    """What ranks print, each with (soft, hard, user): its limit on open files and the user that it is."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    content = secrets.token_hex(32)
    processes = []
    folder.chmod(0o755)
    for rank, how in enumerate(ranks):
        path = folder / f"secret{rank}"
        path.touch(0o600)
        path.write_text(content)
        if how[2]:
            os.chown(path, how[2], how[2])
        own = {"RANK": str(rank), "WORLD_SIZE": str(len(ranks)), "MASTER_ADDR": "127.0.0.1"}
        own |= {"MASTER_PORT": str(port), "PYCOMM_SECRET_FILE": str(path)}
        command = [sys.executable, "-c", PROGRAM, *map(str, how)]
        processes.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **own}, cwd=ROOT)
        )
    return [process.communicate(timeout=60)[0].strip() for process in processes]


def test_the_soft_limit_on_open_files_is_raised_where_it_may(tmp_path: Path) -> None:
    assert run(tmp_path, (64, 4096, 0), (64, 4096, 0)) == ["[2] shm 2.0"] * 2


def test_the_hard_limit_is_told(tmp_path: Path) -> None:
    said = run(tmp_path, (64, 64, 0), (64, 64, 0))[0]
    assert said.startswith("Unsupported this process needs about ")
    assert "may have 64: raise the hard limit (ulimit -Hn " in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start ranks as another user")
def test_ranks_of_two_users_are_two_nodes(tmp_path: Path) -> None:
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    found = run(tmp_path, (0, 0, 0), (0, 0, 1), (0, 0, 0), (0, 0, 1))
    kinds = ["tcp shm tcp", "tcp tcp shm", "shm tcp tcp", "tcp shm tcp"]
    assert found == [f"[2, 2] {each} 4.0" for each in kinds]
