"""One rank of one library. It joins its library, then does what the controller asks until told to leave.

Asked over a socket, one JSON object a line: a collective, how often, in place or not. Answered with the time
of each iteration, or with why it cannot be done. Between two requests it sleeps in `readline`, so that the
other libraries have the machine for themselves.
"""

import gc
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from bench.barrier import Barrier
from bench.peers import Call, Job, Peer, peer_class
from pycomm.bench.workload import Buffers, Workload, parse_dtype

SOCKET = "controller"
BARRIER = "barrier"


def own_rank(peer: type[Peer]) -> int:
    """This worker's rank, which its launcher left in the environment."""
    return next(int(os.environ[name]) for name in peer.rank_variable.split() if name in os.environ)


def pin(rank: int, job: Job) -> None:
    """A CPU for the thread that calls, where there are enough for all ranks; otherwise all share all.

    To be done after joining: a library's own threads may run anywhere, and it sees how many CPUs there are.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if job.ranks <= len(cpus):
        os.sched_setaffinity(0, {cpus[rank]})


def timed(call: Call, buffers: Buffers, barrier: Barrier, iterations: int) -> list[int]:
    """Nanoseconds of each iteration. The source is written anew before each, outside the time."""
    clock, refill, wait = time.perf_counter_ns, buffers.refill, barrier.wait
    times = []
    for _ in range(iterations):
        refill()
        wait()
        start = clock()
        call()
        times.append(clock() - start)
    return times


def serve(request: dict[str, Any], peer: Peer, barrier: Barrier, job: Job, rank: int) -> dict[str, Any]:
    """Does what is asked and says how it went."""
    work = Workload(
        request["collective"],
        request["count"],
        parse_dtype(request["dtype"]),
        rank,
        job.ranks,
        op=request["op"],
    )
    buffers = Buffers(work, in_place=request["in_place"])
    try:
        call = peer.prepare(work, buffers)
    except NotImplementedError as reason:
        return {"unsupported": str(reason)}
    timed(call, buffers, barrier, request["warm_up"])
    if not request["check"]:
        return {"times_ns": timed(call, buffers, barrier, request["iterations"])}
    buffers.poison()
    times = timed(call, buffers, barrier, request["iterations"])
    return {"times_ns": times, "wrong": buffers.wrong(), "planned_bytes": peer.planned_bytes(work)}


def main(library: str, ranks: str, nodes: str, directory: str) -> None:
    job = Job(library, int(ranks), int(nodes), Path(directory))
    kind = peer_class(library)
    rank = own_rank(kind)
    barrier = Barrier(job.directory / BARRIER, rank, job.ranks, yielding=job.crowded)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(job.directory / SOCKET))
        peer = kind(job)
        pin(rank, job)
        gc.disable()
        with connection.makefile("rw") as controller:
            print(json.dumps({"rank": rank}), file=controller, flush=True)
            for line in controller:
                print(
                    json.dumps(serve(json.loads(line), peer, barrier, job, rank)), file=controller, flush=True
                )
                gc.collect()
        peer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
