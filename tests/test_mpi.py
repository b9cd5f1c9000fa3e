"""Joining through mpi4py, under each MPI library that is there."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pycomm import errors
from pycomm.admission.deadline import Deadline
from pycomm.bootstrap.mpi import from_mpi

ROOT = Path(__file__).parent.parent
LIBRARIES = ["mpich", "openmpi", "impi"]


@pytest.fixture(params=LIBRARIES)
def mpi(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    pytest.importorskip("mpi4py")
    if not list((ROOT / ".venv" / "mpi" / name).glob("bin/mpiexec")):
        pytest.skip(f"no {name} here: make setup fetches it")
    return name


def mpirun(mpi: str, ranks: int, program: Path) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "bench" / "mpirun"), mpi, "-n", str(ranks), sys.executable, str(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT)


def test_hello_agrees_with_mpi(mpi: str) -> None:
    done = mpirun(mpi, 4, ROOT / "docs" / "examples" / "mpi4py_hello.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pycomm and MPI agree on [ 6. 10. 14. 18. 22. 26. 30. 34.]") == 4


def test_sub_communicators_order_and_deadline(mpi: str, tmp_path: Path) -> None:
    """Ranks are those of the given communicator; a rank that does not come is named."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import numpy as np
            import pycomm
            from mpi4py import MPI

            world = MPI.COMM_WORLD
            half = world.Split(world.rank % 2, -world.rank)
            with pycomm.init(half) as comm:
                assert (comm.rank, comm.size) == (half.rank, half.size)
                got = comm.all_gather(np.array(world.rank))
                assert got.tolist() == half.allgather(world.rank)
            world.Barrier()
            if world.rank != 2:
                try:
                    pycomm.init(world, timeout_s=1.5)
                except pycomm.TimedOut as error:
                    print(f"<{error}>\\n", end="", flush=True)
            world.Barrier()
            """
        )
    )
    done = mpirun(mpi, 4, program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rank 2 of 4 had not come after 1.5 s") == 3, done.stdout


def test_what_is_no_communicator_is_refused() -> None:
    with pytest.raises(
        errors.InvalidArgument, match=r"int is not an mpi4py communicator, such as MPI.COMM_WORLD"
    ):
        from_mpi(3, Deadline(1))  # type: ignore[arg-type]
