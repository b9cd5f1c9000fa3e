"""pycomm itself, as its users start and call it."""

import sys
from fractions import Fraction

from bench.peers import ROOT, Call, Job, Peer, Process
from bench.placement import Placement
from pycomm.bench import call
from pycomm.bench.workload import Buffers, Workload
from pycomm.topo.outline import blocks_of


class Pycomm(Peer):
    """Started by `pycomm run`; on the hosts of a lab with torchrun's variables."""

    rank_variable = "RANK"

    @classmethod
    def missing(cls, job: Job) -> str | None:
        return None

    @classmethod
    def processes(cls, job: Job, worker: list[str]) -> list[Process]:
        if job.placement:
            return _on_hosts(job.placement, worker)
        command = [sys.executable, "-m", "pycomm", "run", "-n", str(job.ranks)]
        command += ["--nodes", str(job.nodes)] if job.nodes > 1 else []
        return [Process([*command, *worker], {"PYTHONPATH": str(ROOT)})]

    def __init__(self, job: Job) -> None:
        import pycomm

        self._comm = pycomm.init()

    def prepare(self, work: Workload, buffers: Buffers) -> Call:
        return call.prepare(self._comm, work, buffers, None)

    def planned_bytes(self, work: Workload) -> int:
        plan = call.plan_of(self._comm, work, None)
        nodes = plan.topology.node_numbers
        sent = sum(
            (amount for (a, b), amount in plan.traffic.bytes.items() if nodes[a] != nodes[b]), Fraction(0)
        )
        planned_for = plan.request.count(work.ranks) * blocks_of(work.collective, work.ranks)
        return round(sent * work.count / planned_for)

    def close(self) -> None:
        self._comm.close()


def _on_hosts(placement: Placement, worker: list[str]) -> list[Process]:
    started = []
    for rank, host in enumerate(placement.hosts):
        environment = {"PYTHONPATH": str(ROOT), **placement.lab.hosts[host].environment()}
        environment |= {**placement.environment(rank), **placement.settings}
        started.append(Process([sys.executable, *worker], environment, host))
    return started
