"""Who this rank is, from the environment that torchrun or `pycomm run` made, or from explicit arguments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pycomm.admission.deadline import Deadline
from pycomm.bootstrap.bootstrap import Alone, Bootstrap
from pycomm.bootstrap.meeting import Meeting
from pycomm.errors import InvalidArgument

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")


def from_environment(environ: Mapping[str, str], secret_file: str | None, deadline: Deadline) -> Bootstrap:
    """Joins the job that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT tell of; without them, a job of one.

    Raises:
        InvalidArgument: only some of them are set, or one is wrong.
    """
    if not any(name in environ for name in NEEDED[:2]):
        _refuse_mpirun(environ)
        return Alone()
    missing = [name for name in NEEDED if name not in environ]
    size = _number(environ, "WORLD_SIZE") if "WORLD_SIZE" in environ else 0
    if size == 1:
        _check_rank(_number(environ, "RANK") if "RANK" in environ else 0, size)
        return Alone()
    if missing:
        raise InvalidArgument(
            f"init: {', '.join(missing)} not set, though other variables of a launcher are: start the ranks "
            f"with `pycomm run` or torchrun, or pass rank=, size= and address="
        )
    rank, port = _number(environ, "RANK"), _number(environ, "MASTER_PORT")
    _check(rank, size, port)
    host = environ["MASTER_ADDR"]
    local_size = _number(environ, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in environ else None
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
    _check(rank, size, int(port))
    if size == 1:
        return Alone()
    path = Path(secret_file) if secret_file else None
    return Meeting(rank, size, host.strip("[]"), int(port), f"{port}//", path).join(deadline)


def _check_rank(rank: int, size: int) -> None:
    if size < 1:
        raise InvalidArgument(f"init: a job has at least 1 rank, not {size}")
    if not 0 <= rank < size:
        raise InvalidArgument(f"init: rank {rank} of {size} does not exist: ranks are 0 … {size - 1}")


def _check(rank: int, size: int, port: int) -> None:
    _check_rank(rank, size)
    if not 0 < port < 65536:
        raise InvalidArgument(f"init: {port} is not a port: choose one of 1 … 65535")


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise InvalidArgument(f"init: {name}={environ[name]!r} is not a whole number") from None


def _refuse_mpirun(environ: Mapping[str, str]) -> None:
    """Each rank of an MPI job would take itself to be alone: that is never what was meant."""
    for name in MPI_SIZES:
        if environ.get(name, "1").isdecimal() and int(environ.get(name, "1")) > 1:
            raise InvalidArgument(
                f"init: started by an MPI launcher ({name}={environ[name]}): pass the communicator, "
                f"pycomm.init(MPI.COMM_WORLD)"
            )
