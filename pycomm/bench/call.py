"""A workload as a call on a communicator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pycomm.bench.workload import PARTITIONED, Buffers, Workload

if TYPE_CHECKING:
    from pycomm.communicator import Communicator
    from pycomm.topo.plan import Plan


def prepare(
    comm: Communicator, work: Workload, buffers: Buffers, algorithm: str | None, *, async_op: bool = False
) -> Callable[[], Any]:
    """The collective from `buffers.source` to `buffers.target`, ready to be called again and again."""
    source, target, op, root = buffers.source, buffers.target, work.op, work.root
    match work.collective:
        case "all_reduce":
            return lambda: comm.all_reduce(source, op, out=target, async_op=async_op, algorithm=algorithm)
        case "reduce_scatter":
            return lambda: comm.reduce_scatter(source, op, out=target, async_op=async_op, algorithm=algorithm)
        case "all_gather":
            return lambda: comm.all_gather(source, out=target, async_op=async_op, algorithm=algorithm)
        case "all_to_all":
            return lambda: comm.all_to_all(source, out=target, async_op=async_op, algorithm=algorithm)
        case "broadcast":
            return lambda: comm.broadcast(source, root, out=target, async_op=async_op, algorithm=algorithm)
        case "reduce":
            out = target if work.rank == root else None
            return lambda: comm.reduce(source, root, op, out=out, async_op=async_op, algorithm=algorithm)
        case _:
            return lambda: comm.barrier(async_op=async_op)


def plan_of(comm: Communicator, work: Workload, algorithm: str | None) -> Plan:
    """The plan that the workload's calls follow."""
    block = work.count // work.ranks if work.collective in PARTITIONED else work.count
    return comm.plan(work.collective, block, work.dtype.name, work.op, root=work.root, algorithm=algorithm)
