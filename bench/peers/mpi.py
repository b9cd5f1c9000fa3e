"""MPICH, Open MPI and Intel MPI, through mpi4py's calls on buffers."""

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers import ROOT, Call, Job, Peer, Process, mpi_hosts
from pycomm.bench.workload import Buffers, Workload

_PREFIXES = ROOT / ".venv" / "mpi"

# Each worker pins itself, as all libraries' workers do; the launchers' own pinning is switched off.
_OPTIONS = {"mpich": [], "openmpi": ["--bind-to", "none"], "impi": []}
_ENVIRONMENT = {"mpich": {}, "openmpi": {}, "impi": {"I_MPI_PIN": "0"}}
_WHEN_CROWDED = {"mpich": {}, "openmpi": {"OMPI_MCA_mpi_yield_when_idle": "1"}, "impi": {}}

# MPI has no bfloat16; these handles are of MPIX_BFLOAT16 in MPICH's mpi.h and of Intel MPI's MPIX_C_BF16.
_BFLOAT16 = {"mpich": 0x4C00024C, "impi": 0x4C000247}


class Mpi(Peer):
    """One class for the three: bench/mpirun chooses the library."""

    rank_variable = "PMI_RANK OMPI_COMM_WORLD_RANK"

    @classmethod
    def missing(cls, job: Job) -> str | None:
        if not (_PREFIXES / job.library / "bin" / "mpiexec").exists():
            return "not installed: run make setup"
        if find_spec("mpi4py") is None:
            return "mpi4py is not installed"
        return "knows no virtual nodes" if job.nodes > 1 else None

    @classmethod
    def processes(cls, job: Job, worker: list[str]) -> list[Process]:
        command = [str(ROOT / "bench" / "mpirun"), job.library, *_OPTIONS[job.library], "-n", str(job.ranks)]
        environment = {"PYTHONPATH": str(ROOT)} | _ENVIRONMENT[job.library]
        if job.crowded:
            environment |= _WHEN_CROWDED[job.library]
        if job.placement:
            environment |= mpi_hosts.environment(job.library, job.placement)
            command += mpi_hosts.options(job, job.placement, environment)
        return [Process([*command, "python", *worker], environment, 0 if job.placement else None)]

    def __init__(self, job: Job) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = MPI.COMM_WORLD
        self._library = job.library

    def prepare(self, work: Workload, buffers: Buffers) -> Call:
        comm, op = self._comm, self._reduction(work)
        target = self._buffer(buffers.target)
        source = self._mpi.IN_PLACE if buffers.in_place else self._buffer(buffers.source)
        match work.collective:
            case "all_reduce":
                return lambda: comm.Allreduce(source, target, op)
            case "reduce_scatter":
                return lambda: comm.Reduce_scatter_block(source, target, op)
            case "all_gather":
                return lambda: comm.Allgather(source, target)
            case "all_to_all":
                return lambda: comm.Alltoall(source, target)
            case "reduce":
                if work.rank == work.root:
                    return lambda: comm.Reduce(source, target, op, work.root)
                sent = self._buffer(buffers.source)
                return lambda: comm.Reduce(sent, None, op, work.root)
            case "broadcast":
                if not buffers.in_place:
                    raise NotImplementedError("MPI broadcasts in place")
                return lambda: comm.Bcast(target, work.root)
            case _:
                return comm.Barrier

    def close(self) -> None:
        self._mpi.Finalize()

    def _buffer(self, array: NDArray[Any]) -> list[Any]:
        """The array with its datatype, which mpi4py cannot guess for bfloat16."""
        name = array.dtype.name
        if name == "bfloat16":
            if self._library not in _BFLOAT16:
                raise NotImplementedError("this MPI has no bfloat16")
            return [array.view(np.uint16), self._mpi.Datatype.fromhandle(_BFLOAT16[self._library])]
        return [array, self._mpi.Datatype.fromcode(array.dtype.char)]

    def _reduction(self, work: Workload) -> Any:
        names = {"sum": "SUM", "product": "PROD", "min": "MIN", "max": "MAX"}
        if work.op not in names:
            raise NotImplementedError(f"MPI does not reduce with {work.op}")
        return getattr(self._mpi, names[work.op])
