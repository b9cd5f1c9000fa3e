"""Probes: small programs between pairs of ranks. All ranks of the job call each of these together."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from pycomm._C import Group, Program, Span
from pycomm.communicator import Communicator
from pycomm.topo import Topology
from pycomm.tune.fit import Samples

ROUNDS = 16  # there and back in one program
FLOOD = 64  # messages one behind the other in one program
LEAST_BYTES = 64 << 10
MOST_BYTES = 64 << 20
ENOUGH_S = 0.1  # a message that takes so long says enough of the rate
REPEATS = 7

Colour = int | None  # of comm.split


def local_colour(topology: Topology, rank: int) -> Colour:
    """The pair of neighbours on one node that a rank belongs to; None where its node has none left for it."""
    node = topology.nodes[topology.node_of(rank)]
    pair = node.index(rank) // 2
    return None if 2 * pair + 1 >= len(node) else node[2 * pair]


def rail_colour(topology: Topology, rank: int) -> Colour:
    """The pair of ranks on one rail of two nodes that a rank belongs to: one pair for each NIC at a time."""
    node, rail = topology.node_of(rank), topology.rail_of(rank)
    low = node // 2 * 2
    if low + 1 == len(topology.nodes):
        return None
    on_rail = [[r for r in topology.nodes[each] if topology.rail_of(r) == rail] for each in (low, low + 1)]
    if not all(on_rail) or rank not in (on_rail[0][0], on_rail[1][0]):
        return None
    return on_rail[0][0]


def probe(comm: Communicator, colour: Colour) -> Samples | None:
    """Measures between the pairs of ranks of one colour, all pairs at once, as in a collective.

    Returns:
        The slowest pair's samples, the same on every rank; None where there is no pair.
    """
    pair = comm.split(colour)
    exists = comm.all_reduce(np.array([0 if pair is None else 1]), op="max")[0]
    if not exists:
        return None
    if pair is not None:
        pair.install("ping", "broadcast", _ping, chunks=ROUNDS)
        pair.install("flood", "broadcast", _flood, chunks=FLOOD)
    try:
        ping = _slowest(comm, pair, _broadcast("ping", ROUNDS))
        flood = _slowest(comm, pair, _broadcast("flood", FLOOD))
        moved, reduced = [], []
        size = LEAST_BYTES
        while True:
            moved.append((size, _slowest(comm, pair, _gather(size))))
            reduced.append((size, _slowest(comm, pair, _scatter(size))))
            if len(moved) > 1 and (moved[-1][1] > ENOUGH_S or size >= MOST_BYTES):
                break
            size *= 4
        return Samples(ping / (2 * ROUNDS), flood / FLOOD, moved, reduced)
    finally:
        if pair is not None:
            pair.close()


# -- the programs -----------------------------------------------------------------------------------


def _ping(program: Program, group: Group, data: Span) -> None:
    """Each chunk goes there and comes back before the next one goes: 2 · ROUNDS messages in a row."""
    other = group.at(1 - group.index)
    for chunk in range(ROUNDS):
        if group.index == 0:
            program.send(other, data.part(chunk, ROUNDS))
            program.recv(other, data.part(chunk, ROUNDS))
        else:
            program.recv(other, data.part(chunk, ROUNDS))
            program.send(other, data.part(chunk, ROUNDS))


def _flood(program: Program, group: Group, data: Span) -> None:
    """FLOOD messages, none of which waits for an answer."""
    other = group.at(1 - group.index)
    for chunk in range(FLOOD):
        if group.index == 0:
            program.send(other, data.part(chunk, FLOOD))
        else:
            program.recv(other, data.part(chunk, FLOOD))


Call = Callable[[], object]
Prepare = Callable[[Communicator], Call]


def _broadcast(algorithm: str, chunks: int) -> Prepare:
    def prepare(pair: Communicator) -> Call:
        x = np.ones(chunks)  # float64: 8 bytes a message
        return lambda: pair.broadcast(x, out=x, algorithm=algorithm)

    return prepare


def _gather(size: int) -> Prepare:
    """Two ranks send each other `size` bytes, in place: nothing is copied on the rank itself."""

    def prepare(pair: Communicator) -> Call:
        everyone = np.ones((2, size // 4), np.float32)
        return lambda: pair.all_gather(everyone[pair.rank], out=everyone, algorithm="direct")

    return prepare


def _scatter(size: int) -> Prepare:
    """The same with a reduction of what comes."""

    def prepare(pair: Communicator) -> Call:
        both = np.ones((2, size // 4), np.float32)
        own = both[pair.rank : pair.rank + 1]
        return lambda: pair.reduce_scatter(both, out=own, algorithm="direct")

    return prepare


def _slowest(comm: Communicator, pair: Communicator | None, prepare: Prepare) -> float:
    """The median time of a call, in seconds, of the rank that took longest."""
    times = [0.0]
    if pair is not None:
        call = prepare(pair)
        call()
        times = []
        for _ in range(REPEATS):
            pair.barrier()
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
    return float(comm.all_reduce(np.array([median(times)]), op="max")[0])
