"""Two ranks as processes on two virtual nodes, with two links between them, of which some are cut."""

import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINKS = 2

RANK = """
import sys
import threading
import time

import numpy as np

from pycomm._C import Fabric
from pycomm.communicator import Communicator
from pycomm.errors import PeerLost
from pycomm.settings import Settings
from pycomm.topo import Topology
from pycomm.world import World

rank, peer = int(sys.argv[1]), 1 - int(sys.argv[1])
fabric = Fabric(rank, 2)
fabric.add_tcp(peer, [int(fd) for fd in sys.argv[2:]])


class Connected:
    def ensure_connected(self, peers, deadline): ...
    def close(self): ...


def cut(link, after_bytes):
    while fabric.links(peer)[link].sent_bytes < after_bytes:
        time.sleep(0.001)
    fabric.cut_link(peer, link)


world = World(fabric, Topology.from_sizes([1, 1]), ["one", "two"], True, Settings(), Connected())
comm = Communicator(world, (0, 1), 0, 30.0)
count = 1 << 23
x = np.arange(count, dtype=np.float32) % 1024 + rank
expected = np.arange(count, dtype=np.float32) % 1024 * 2 + 1
"""


def run_two(text: str) -> list[subprocess.CompletedProcess[str]]:
    """Runs a script as both ranks, given `RANK` before it; sockets are already there."""
    ends = [_connection() for _ in range(LINKS)]
    started = []
    try:
        for rank in range(2):
            fds = [pair[rank].fileno() for pair in ends]
            command = [sys.executable, "-c", RANK + textwrap.dedent(text), str(rank), *map(str, fds)]
            started.append(
                subprocess.Popen(
                    command,
                    pass_fds=fds,
                    cwd=ROOT,
                    text=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
    finally:
        for pair in ends:
            for sock in pair:
                sock.close()
    done = []
    for process in started:
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return done


def _connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dialled = socket.create_connection(listener.getsockname())
        return dialled, listener.accept()[0]


def test_both_links_carry_a_large_all_reduce() -> None:
    for done in run_two(
        """
        out = comm.all_reduce(x)
        assert (out == expected).all()
        sent, received, _, _ = fabric.counters(peer)
        links = fabric.links(peer)
        assert sum(link.sent_bytes for link in links) == sent
        assert all(link.sent_bytes > sent / 8 and not link.lost for link in links), links
        """
    ):
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("link", range(LINKS))
@pytest.mark.parametrize("cutter", [0, 1])
def test_a_link_that_is_cut_in_the_middle_is_not_missed(link: int, cutter: int) -> None:
    for done in run_two(
        f"""
        if rank == {cutter}:
            threading.Thread(target=cut, args=({link}, 4 << 20), daemon=True).start()
        for _ in range(3):
            assert (comm.all_reduce(x) == expected).all()
        links = fabric.links(peer)
        assert links[{link}].lost and not links[{1 - link}].lost, [each.lost for each in links]
        assert links[{1 - link}].sent_bytes > links[{link}].sent_bytes
        """
    ):
        assert done.returncode == 0, done.stderr


def test_with_the_last_link_the_peer_is_lost() -> None:
    for done in run_two(
        """
        if rank == 0:
            for link in range(2):
                threading.Thread(target=cut, args=(link, 4 << 20), daemon=True).start()
        try:
            for _ in range(20):
                comm.all_reduce(x)
        except PeerLost as error:
            assert "the last of 2 links" in str(error), error
        else:
            raise AssertionError("nobody noticed")
        x[:] = -1  # ours again
        """
    ):
        assert done.returncode == 0, done.stderr
