"""Ranks as processes under `pycomm run`: examples, transports, deaths, leaks."""

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
TRANSPORTS = ["auto", "tcp"]


def run(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pycomm", "run", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, cwd=ROOT, env={**os.environ, **environ}
    )


def script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    head = "import os, signal, sys, time\nimport numpy as np\nimport pycomm\n"
    path.write_text(head + textwrap.dedent(text))
    return path


def lines(done: subprocess.CompletedProcess[str]) -> dict[int, list[str]]:
    """Standard output by rank."""
    found: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        mark, _, text = line.partition(" ")
        found.setdefault(int(mark[1:-1]), []).append(text)
    return found


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 40


@pytest.mark.parametrize("nodes", ["1", "2", "3,1"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_hello(nodes: str, transport: str) -> None:
    done = run("-n", 4, "--nodes", nodes, EXAMPLES / "hello.py", PYCOMM_TRANSPORT=transport)
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"rank {rank} of 4: the sum of all ranks' x is [10. 10. 10. 10.]" in lines(done)[rank]
    assert "proof" in done.stdout
    if nodes == "2":
        assert re.search(r"across rails +0 B", done.stdout)


def test_your_own_algorithm_is_run_and_a_broken_one_refused() -> None:
    done = run("-n", 3, EXAMPLES / "your_own_algorithm.py")
    assert done.returncode == 0, done.stderr
    for rank in range(3):
        total, refused = lines(done)[rank]
        assert total == "[3. 3. 3.]"
        assert re.match(r'refused: rank \d+, channel 0, step \d+ "[^"]+": ', refused)


def test_nodes_and_transports_are_as_asked(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        with pycomm.init() as comm:
            comm.all_reduce(np.ones(1000), algorithm="direct")
            others = [r for r in range(comm.size) if r != comm.rank]
            kinds = [comm._world.fabric.transport(r) for r in others]
            print(comm.topology, *kinds)
        """,
    )
    done = run("-n", 3, "--nodes", "2,1", path)
    assert [lines(done)[rank][0].split(") ")[1] for rank in range(3)] == ["shm tcp", "shm tcp", "tcp tcp"]
    assert "Topology(2 nodes, 3 ranks: node0[0 1] node1[2])" in done.stdout
    done = run("-n", 3, path, PYCOMM_TRANSPORT="tcp")
    assert [lines(done)[rank][0].split(") ")[1] for rank in range(3)] == ["tcp tcp"] * 3
    assert "Topology(1 node, 3 ranks: node0[0 1 2])" in done.stdout


def test_virtual_nodes_have_addresses_of_their_own(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        with pycomm.init() as comm:
            print(*(reach.loopback[0] for reach in comm._world.connections.reaches))
        """,
    )
    done = run("-n", 4, "--nodes", 2, path)
    assert lines(done)[3] == ["127.0.1.1 127.0.2.1 127.0.1.2 127.0.2.2"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_killed_rank_is_named_by_every_survivor(tmp_path: Path, transport: str) -> None:
    path = script(
        tmp_path,
        """
        comm = pycomm.init(timeout_s=20)
        x = np.ones(1 << 16, np.float32)
        try:
            for turn in range(1_000_000):
                if comm.rank == 2 and turn == 20:
                    print(time.monotonic(), flush=True)
                    os.kill(os.getpid(), signal.SIGKILL)
                comm.all_reduce(x)
        except pycomm.PeerLost as error:
            print(time.monotonic(), error, flush=True)
            time.sleep(30)  # so that no survivor blames another that has gone
        """,
    )
    job = subprocess.Popen(
        [sys.executable, "-c", LAUNCH_WITHOUT_CARE, "4", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYCOMM_TRANSPORT": transport},
    )
    said, _ = job.communicate(timeout=60)
    found = dict(line.split("|", 1) for line in said.splitlines())
    died = float(found["2"])
    for rank in "013":
        at, error = found[rank].split(" ", 1)
        assert "rank 2 (node0, pid " in error
        assert "all_reduce #" in error
        assert float(at) - died < 5, "long before the deadline of 20 s"


# `pycomm run` ends the survivors at once; here they may say what they saw.
LAUNCH_WITHOUT_CARE = """
import subprocess, sys
from pathlib import Path
from pycomm.cli.run import rank_environments
import os, secrets
secret = os.memfd_create("s"); os.fchmod(secret, 0o600); os.write(secret, secrets.token_hex(32).encode())
envs = rank_environments([int(sys.argv[1])], False, Path(f"/proc/{os.getpid()}/fd/{secret}"))
command = [sys.executable, sys.argv[2]]
ranks = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for env in envs]
for rank, process in enumerate(ranks):
    print(f"{rank}|{process.stdout.readline().strip()}")
for process in ranks:
    process.kill()
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_rank_that_never_calls_is_named(tmp_path: Path, transport: str) -> None:
    path = script(
        tmp_path,
        """
        with pycomm.init() as comm:
            comm.barrier()
            if comm.rank == 1:
                time.sleep(3)
            else:
                started = time.monotonic()
                try:
                    comm.all_reduce(np.ones(5), timeout_s=1)
                except pycomm.TimedOut as error:
                    print(f"{time.monotonic() - started < 2.5} {error}")
        """,
    )
    done = run("-n", 3, path, PYCOMM_TRANSPORT=transport)
    for rank in (0, 2):
        assert lines(done)[rank][0].startswith("True "), done.stdout + done.stderr
        assert "rank 1" in lines(done)[rank][0]


def test_unlike_settings_are_named(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        if os.environ["RANK"] == "1":
            os.environ["PYCOMM_POLICY"] = "strict"
        try:
            pycomm.init()
        except pycomm.Mismatch as error:
            print(error)
        """,
    )
    done = run("-n", 3, path)
    text = "init: rank 1 has PYCOMM_POLICY=strict, rank 0 has rail_first: it must be the same everywhere"
    assert lines(done) == {rank: [text] for rank in range(3)}


def test_nothing_is_left_after_many_communicators(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        def holds():
            limit = time.monotonic() + 5
            while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < limit:
                time.sleep(0.01)  # a joined thread may take a moment to vanish
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        def once():
            with pycomm.init() as comm:
                comm.all_reduce(np.ones(1000))
                part = comm.split(comm.rank % 2)
                part.all_reduce(np.ones(10), async_op=True).wait()
                comm.rail.barrier()
                comm.barrier()
        once()
        before = holds()
        for _ in range(5):
            once()
        print(before == holds(), before, holds())
        abandoned = pycomm.init()
        abandoned.barrier()
        del abandoned
        print(before == holds(), before, holds())
        """,
    )
    for nodes in ("1", "2"):
        done = run("-n", 4, "--nodes", nodes, path)
        assert done.returncode == 0, done.stderr
        for rank in range(4):
            closed, abandoned = lines(done)[rank]
            assert closed.startswith("True"), done.stdout
            assert abandoned.startswith("True"), done.stdout


def test_several_communicators_in_one_process(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        a, b = pycomm.init(), pycomm.init()
        works = [b.all_reduce(np.ones(3), async_op=True), a.all_reduce(np.ones(3), async_op=True)]
        a.barrier()
        print(*(work.wait() for work in works))
        a.close()
        print(b.all_reduce(np.ones(2)))
        b.close()
        """,
    )
    done = run("-n", 3, "--nodes", 2, path)
    assert done.returncode == 0, done.stderr
    assert lines(done) == {rank: ["[3. 3. 3.] [3. 3. 3.]", "[3. 3.]"] for rank in range(3)}


def test_exit_without_close_is_no_crash(tmp_path: Path) -> None:
    path = script(tmp_path, "comm = pycomm.init()\nprint(comm.all_reduce(np.ones(1)))\n")
    for _ in range(3):
        done = run("-n", 4, "--nodes", 2, path)
        assert (done.returncode, done.stderr) == (0, "")


def test_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    started = time.monotonic()
    done = subprocess.run(
        [*command, EXAMPLES / "your_own_algorithm.py"], capture_output=True, text=True, timeout=100, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[3. 3. 3.]") == 3
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_forked_child_that_closes_and_ends_harms_nobody(tmp_path: Path, transport: str) -> None:
    path = script(
        tmp_path,
        """
        comm = pycomm.init(timeout_s=20)
        comm.all_reduce(np.ones(10))
        child = os.fork()
        if child == 0:
            comm.close()
            del comm
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print(comm.all_reduce(np.ones(1 << 18))[0], comm.all_to_all(np.arange(comm.size))[0] == comm.rank)
        comm.close()
        """,
    )
    done = run("-n", 3, "--timeout", 40, path, PYCOMM_TRANSPORT=transport)
    assert done.returncode == 0, done.stderr
    assert lines(done) == {rank: ["3.0 True"] for rank in range(3)}
