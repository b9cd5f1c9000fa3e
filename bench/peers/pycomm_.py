"""pycomm itself, as its users start and call it."""

import sys

from bench.peers import ROOT, Call, Job, Peer, Process
from pycomm.bench import call
from pycomm.bench.workload import Buffers, Workload


class Pycomm(Peer):
    """Started by `pycomm run`."""

    rank_variable = "RANK"

    @classmethod
    def missing(cls, job: Job) -> str | None:
        return None

    @classmethod
    def processes(cls, job: Job, worker: list[str]) -> list[Process]:
        command = [sys.executable, "-m", "pycomm", "run", "-n", str(job.ranks)]
        command += ["--nodes", str(job.nodes)] if job.nodes > 1 else []
        return [Process([*command, *worker], {"PYTHONPATH": str(ROOT)})]

    def __init__(self, job: Job) -> None:
        import pycomm

        self._comm = pycomm.init()

    def prepare(self, work: Workload, buffers: Buffers) -> Call:
        return call.prepare(self._comm, work, buffers, None)

    def close(self) -> None:
        self._comm.close()
