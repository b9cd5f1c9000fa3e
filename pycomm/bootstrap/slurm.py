"""Who this rank is, from the variables that srun sets for each task: see srun(1), "Output environment
variables".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pycomm.bootstrap.hostlist import expand
from pycomm.bootstrap.meeting import Meeting
from pycomm.bootstrap.numbers import check, number
from pycomm.errors import InvalidArgument

NODE_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
LAST_NORMAL_STEP = 0xFFFFFFF0  # SLURM_MAX_NORMAL_STEP_ID, slurm/slurm.h
SIZES = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")


def is_task(environ: Mapping[str, str]) -> bool:
    """Whether srun has started this process, or one that it was started by: not a batch script, which has no
    step or one of a special number, nor what that starts by itself.
    """
    step = environ.get("SLURM_STEP_ID", "")
    return "SLURM_PROCID" in environ and step.isdecimal() and int(step) <= LAST_NORMAL_STEP


def meeting(environ: Mapping[str, str], secret_file: str | None) -> Meeting:
    """Where the tasks of a job step meet: at the first host of its list, at a port that follows from its
    number. MASTER_ADDR and MASTER_PORT, where they are set, say otherwise.

    Raises:
        InvalidArgument: a variable is missing or wrong.
    """
    rank, size = number(environ, "SLURM_PROCID"), number(environ, _first(environ, SIZES))
    hosts = expand(environ[_first(environ, NODE_LISTS)])
    step = "/".join(environ.get(f"SLURM_{name}", "0") for name in ("JOB_ID", "STEP_ID", "RESTART_COUNT"))
    given = "MASTER_PORT" in environ
    port = number(environ, "MASTER_PORT") if given else 1
    check(rank, size, port)
    return Meeting(
        rank=rank,
        size=size,
        host=environ.get("MASTER_ADDR", hosts[0]),
        port=port,
        job=f"slurm/{step}",
        secret_file=Path(secret_file) if secret_file else None,
        port_taken=not given,
        several_hosts=len(hosts) > 1,
    )


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        if name in environ:
            return name
    raise InvalidArgument(
        f"init: started by srun (SLURM_PROCID={environ['SLURM_PROCID']}), but {' and '.join(names)} are not "
        f"set: pass them on, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )
