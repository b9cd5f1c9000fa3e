"""gloo, through torch.distributed: what PyTorch users have on CPUs."""

import os
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers import ROOT, Call, Job, Peer, Process
from pycomm.bench.workload import Buffers, Workload


class Gloo(Peer):
    """Its reductions are in place only: out of place is a copy and an in-place call."""

    rank_variable = "RANK"

    @classmethod
    def missing(cls, job: Job) -> str | None:
        return None if find_spec("torch") else "torch is not installed"

    @classmethod
    def processes(cls, job: Job, worker: list[str]) -> list[Process]:
        environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        started = []
        for rank in range(job.ranks):
            own = {"RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"}
            host = None
            if job.placement:  # a rank uses one interface: that of its rail, as a user would choose
                own["GLOO_SOCKET_IFNAME"] = f"nic{job.placement.rails[rank]}"
                host = job.placement.hosts[rank]
            started.append(Process([sys.executable, *worker], environment | own, host))
        return started

    def __init__(self, job: Job) -> None:
        import torch
        import torch.distributed

        torch.set_num_threads(1)
        self._torch = torch
        self._dist = torch.distributed
        self._dist.init_process_group(
            "gloo",
            init_method=f"file://{job.directory}/gloo",
            rank=int(os.environ["RANK"]),
            world_size=job.ranks,
        )

    def prepare(self, work: Workload, buffers: Buffers) -> Call:
        source, target = self._tensor(buffers.source), self._tensor(buffers.target)
        dist, op = self._dist, self._reduction(work)
        match work.collective:
            case "all_reduce":
                in_place: Call = lambda: dist.all_reduce(target, op)  # noqa: E731
            case "reduce":
                in_place = lambda: dist.reduce(target, work.root, op)  # noqa: E731
            case "broadcast":
                in_place = lambda: dist.broadcast(target, work.root)  # noqa: E731
            case "reduce_scatter":
                return lambda: dist.reduce_scatter_tensor(target, source, op)
            case "all_gather":
                return lambda: dist.all_gather_into_tensor(target, source)
            case "all_to_all":
                return lambda: dist.all_to_all_single(target, source)
            case "barrier":
                return lambda: dist.barrier()
        if buffers.in_place:
            return in_place
        return lambda: (target.copy_(source), in_place())

    def close(self) -> None:
        self._dist.destroy_process_group()

    def _tensor(self, array: NDArray[Any]) -> Any:
        if array.dtype.name == "bfloat16":
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def _reduction(self, work: Workload) -> Any:
        reductions = self._dist.ReduceOp
        names = {"sum": "SUM", "product": "PRODUCT", "min": "MIN", "max": "MAX"}
        if work.op not in names:
            raise NotImplementedError(f"gloo does not reduce with {work.op}")
        return getattr(reductions, names[work.op])
