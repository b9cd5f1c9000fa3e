"""Who this rank is, from the environment that torchrun, `pycomm run` or srun made, or from arguments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pycomm.admission.deadline import Deadline
from pycomm.bootstrap import slurm
from pycomm.bootstrap.bootstrap import Alone, Bootstrap
from pycomm.bootstrap.meeting import Meeting
from pycomm.bootstrap.numbers import check, check_rank, number
from pycomm.errors import InvalidArgument

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MPI_NUMBERS = (  # sizes that MPI launchers set, and ranks where srun's MPI plug-ins set them too
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("MPI_LOCALNRANKS", ""),
)


def from_environment(environ: Mapping[str, str], secret_file: str | None, deadline: Deadline) -> Bootstrap:
    """Joins the job that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT tell of; without them the job step
    that srun has made; without that, too, a job of one.

    Raises:
        InvalidArgument: only some of them are set, or one is wrong.
    """
    if not any(name in environ for name in NEEDED[:2]):
        _refuse_mpirun(environ)
        if not slurm.is_task(environ):
            return Alone()
        found = slurm.meeting(environ, secret_file)
        return Alone() if found.size == 1 else found.join(deadline)
    missing = [name for name in NEEDED if name not in environ]
    size = number(environ, "WORLD_SIZE") if "WORLD_SIZE" in environ else 0
    if size == 1:
        check_rank(number(environ, "RANK") if "RANK" in environ else 0, size)
        return Alone()
    if missing:
        raise InvalidArgument(
            f"init: {', '.join(missing)} not set, though other variables of a launcher are: start the ranks "
            f"with `pycomm run` or torchrun, or pass rank=, size= and address="
        )
    rank, port = number(environ, "RANK"), number(environ, "MASTER_PORT")
    check(rank, size, port)
    host = environ["MASTER_ADDR"]
    local_size = number(environ, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in environ else None
    loopback = host == "localhost" or host == "::1" or host.startswith("127.")
    run, restart = environ.get("TORCHELASTIC_RUN_ID"), environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    meeting = Meeting(
        rank=rank,
        size=size,
        host=host,
        port=port,
        job=f"{port}/{run or ''}/{restart}",
        secret_file=Path(secret_file) if secret_file else None,
        port_taken=run is not None,
        several_hosts=False if loopback else None if local_size is None else local_size < size,
    )
    return meeting.join(deadline)


def from_arguments(
    rank: int, size: int, address: str, secret_file: str | None, deadline: Deadline
) -> Bootstrap:
    """Joins a job of `size` ranks whose rank 0 is at `address`, such as "10.0.0.1:29500" or "[::1]:29500".

    Raises:
        InvalidArgument: an argument is wrong.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise InvalidArgument(f"init: address={address!r} is not of the form host:port")
    check(rank, size, int(port))
    if size == 1:
        return Alone()
    path = Path(secret_file) if secret_file else None
    return Meeting(rank, size, host.strip("[]"), int(port), f"{port}//", path).join(deadline)


def _refuse_mpirun(environ: Mapping[str, str]) -> None:
    """Each rank of an MPI job would take itself to be alone, or for a task of srun, which may have started
    the launcher's daemons: that is never what was meant. Where both say the same, srun is the MPI launcher.
    """
    for size, rank in MPI_NUMBERS:
        text = environ.get(size, "1")
        if not text.isdecimal() or int(text) <= 1:
            continue
        if slurm.is_task(environ) and rank and environ.get(rank) == environ["SLURM_PROCID"]:
            continue
        raise InvalidArgument(
            f"init: started by an MPI launcher ({size}={environ[size]}): pass the communicator, "
            f"pycomm.init(MPI.COMM_WORLD)"
        )
