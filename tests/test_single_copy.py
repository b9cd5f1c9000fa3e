"""Single copy: large messages inside a node are read out of the sender's memory, or copied through slots
where that is refused; the results are the same.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycomm
from pycomm.testing import threads
from pycomm.topo import Limits, Topology

ROOT = Path(__file__).parent.parent
LEAST = 64 * 1024  # bytes of a message that is lent
EDGES = [LEAST // 4 - 1, LEAST // 4, LEAST // 4 + 1]  # in elements
STEP = 7  # of the data, so that every rank's differ

SECCOMP = """
import ctypes, platform

def refuse_reading_others():
    # struct sock_filter: load the number of the system call; if it is process_vm_readv, EPERM; else allow
    number = {"x86_64": 310, "aarch64": 270}[platform.machine()]
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | 1), (0x06, 0, 0, 0x7FFF0000)]
    packed = b"".join(op.to_bytes(2, "little") + bytes([yes, no]) + k.to_bytes(4, "little")
                      for op, yes, no, k in code)
    filters = ctypes.create_string_buffer(packed, len(packed))
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filters", ctypes.c_void_p)]
    program = Program(len(code), ctypes.addressof(filters))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
"""

SUM_AND_SAY = """
import logging
with pycomm.init() as comm:
    fabric = comm._world.fabric
    x = np.arange(500_000, dtype=np.int64) + comm.rank
    total = comm.all_reduce(x)
    assert (total == comm.size * np.arange(500_000) + sum(range(comm.size))).all()
    everyone = comm.all_gather(x)
    assert all((everyone[i] == x - comm.rank + i).all() for i in range(comm.size))
    others = [r for r in range(comm.size) if r != comm.rank]
    print("right", *(fabric.why_not_single_copy(r) or "once" for r in others), sep="|")
"""


def run(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pycomm", "run", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, cwd=ROOT, env={**os.environ, **environ}
    )


def script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text("import os, sys\nimport numpy as np\nimport pycomm\n" + textwrap.dedent(text))
    return path


def data(rank: int, *shape: int) -> Any:
    """Small whole numbers that differ from rank to rank and place to place."""
    return ((np.arange(np.prod(shape)) * STEP + rank * 3) % 11).astype(np.float32).reshape(shape)


def check_all(comm: pycomm.Communicator, count: int) -> None:
    """Every collective, in place and out of place, on `count` elements a block."""
    comm._world.fabric.set_single_copy(LEAST)
    n, rank, ranks = comm.size, comm.rank, range(comm.size)
    total = np.sum([data(r, count) for r in ranks], axis=0)
    for in_place in (False, True):
        x = data(rank, count)
        assert (comm.all_reduce(x, out=x if in_place else None) == total).all()
        x = data(0, count) if rank == 0 else np.zeros(count, np.float32)
        assert (comm.broadcast(x, 0, out=x if in_place else None) == data(0, count)).all()
        blocks = np.sum([data(r, n, count) for r in ranks], axis=0)
        x = data(rank, n, count)
        out = x[rank] if in_place else None
        assert (comm.reduce_scatter(x, out=out) == blocks[rank]).all()
        x = np.zeros((n, count), np.float32)
        x[rank] = data(rank, count)
        got = comm.all_gather(x[rank], out=x) if in_place else comm.all_gather(x[rank])
        assert all((got.reshape(n, count)[r] == data(r, count)).all() for r in ranks)
    x = data(rank, count)
    result = comm.reduce(x, 0)
    assert (result == total).all() if rank == 0 else (x == data(rank, count)).all()
    got = comm.all_to_all(data(rank, n, count))
    assert all((got[r] == data(r, n, count)[rank]).all() for r in ranks)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_collectives_of_threads_around_the_threshold(size: int) -> None:
    def body(comm: pycomm.Communicator) -> None:
        for count in (*EDGES, LEAST // 4 * size if size < 8 else 0):  # whole messages, and shares
            check_all(comm, count)

    threads(size, body)


@pytest.mark.parametrize("topology", [[2, 2], [3, 1]])
def test_forwarded_messages_of_two_levels(topology: list[int]) -> None:
    threads(Topology.from_sizes(topology), lambda comm: check_all(comm, 150_001))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_collectives_of_processes_around_the_threshold(tmp_path: Path, size: int) -> None:
    here = str(Path(__file__).parent)
    body = f"""
    sys.path.insert(0, {here!r})
    from test_single_copy import EDGES, check_all
    with pycomm.init() as comm:
        others = [r for r in range(comm.size) if r != comm.rank]
        assert not any(map(comm._world.fabric.why_not_single_copy, others))
        for count in [*EDGES, 300_000]:
            check_all(comm, count)
    """
    done = run("-n", size, script(tmp_path, body))
    assert done.returncode == 0, done.stderr


def test_the_least_size_is_the_profiles(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.write_text(json.dumps({"limits": {"single_copy_bytes": 100_000}}))
    done = run("-n", 2, script(tmp_path, SUM_AND_SAY), PYCOMM_PROFILE=str(profile), PYCOMM_LOG="info")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right|once") == 2
    for rank in (0, 1):
        assert f"rank {rank} copies large messages of its node straight from the sender" in done.stderr
    with pytest.raises(ValueError, match="single_copy_bytes is at least 64"):
        Limits(single_copy_bytes=63)


@pytest.mark.parametrize("refused", [{0}, {1, 2}, {0, 1, 2}], ids=str)
def test_seccomp_falls_back_to_slots(tmp_path: Path, refused: set[int]) -> None:
    prefix = f"if int(os.environ['RANK']) in {refused}: refuse_reading_others()\n"
    path = script(tmp_path, SECCOMP + prefix + SUM_AND_SAY)
    done = run("-n", 3, path, PYCOMM_LOG="info")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right") == 3
    for rank in refused:
        others = " and ".join(str(r) for r in range(3) if r != rank)
        assert f"rank {rank} cannot read the memory of ranks {others} (process_vm_readv: " in done.stderr
    assert done.stderr.count("are copied twice") == len(refused)


def test_another_user_namespace_falls_back_to_slots(tmp_path: Path) -> None:
    unshare = ["unshare", "--user", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("unshare --user is not allowed here")
    outer = script(tmp_path, SUM_AND_SAY)
    path = tmp_path / "outer.py"
    path.write_text(
        textwrap.dedent(f"""
        import os, sys
        name = {str(tmp_path / "secret")!r} + os.environ["RANK"]
        with open(os.environ["PYCOMM_SECRET_FILE"]) as given, open(name, "w") as copy:
            os.fchmod(copy.fileno(), 0o600)
            copy.write(given.read())
        os.environ["PYCOMM_SECRET_FILE"] = name
        own = [sys.executable, {str(outer)!r}]
        os.execvp(*(("unshare", [*{unshare!r}, *own]) if os.environ["RANK"] == "1" else (own[0], own)))
        """)
    )
    done = run("-n", 2, path, PYCOMM_LOG="info")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right") == 2
    assert "rank 1 cannot read the memory of rank 0" in done.stderr or "separate nodes" in done.stderr


def test_a_sender_that_gave_up_is_blamed_by_a_late_receiver() -> None:
    gave_up = threading.Event()

    def body(comm: pycomm.Communicator) -> str:
        comm._world.fabric.set_single_copy(LEAST)
        x = np.full(1_000_000, 7, np.float32)
        comm.barrier()
        try:
            if comm.rank == 0:
                comm.broadcast(x, 0, out=x, timeout_s=0.2)
            else:
                gave_up.wait(20)
                comm.broadcast(x, 0, out=x)
        except pycomm.TimedOut as error:
            return str(error)
        finally:
            x.fill(113)
            gave_up.set()
        return "no error"

    texts = threads(2, body)
    assert texts[0] == texts[1]
    assert "did not finish within 0.2 s" in texts[0]


def test_info_says_whether_it_can_be() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pycomm", "info"], capture_output=True, text=True, check=True
    )
    assert "single copy" in done.stdout
