"""Tuning a job: its wires' figures, the best slice, and how well the plans made with them predict."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from pycomm.communicator import Communicator
from pycomm.topo import Profile
from pycomm.topo.profile import Wire
from pycomm.tune.fit import fit
from pycomm.tune.probes import local_colour, probe, rail_colour

SLICES = (32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10)
SLICE_TRIAL_S = 0.2  # of a call by which slices are compared, at most
WORTH = 0.97  # another slice than the given one must be so much faster: less is noise
SIZES = tuple(1 << power for power in range(3, 25, 3))  # bytes, at which the prediction is looked at
ROUNDS = 5


@dataclass(frozen=True)
class Check:
    """Predicted and measured time of an all-reduce of `size` bytes, in seconds."""

    size: int
    algorithm: str
    predicted_s: float
    measured_s: float


def measure_profile(comm: Communicator, name: str) -> Profile:
    """The profile of the machines that a job runs on. All ranks call it; all get the same.

    A wire that no two ranks are joined by (one rank on every node, or one node) keeps its present figures.

    Args:
        comm: The communicator of all ranks.
        name: What the profile will say of its source.
    """
    rank, topology, profile = comm.rank, comm.topology, comm._world.profile
    wires: dict[str, Wire] = {}
    for wire, colour in (("local", local_colour), ("network", rail_colour)):
        samples = probe(comm, colour(topology, rank))
        if samples is not None:
            wires[wire] = fit(samples)
    local, network = wires.get("local", profile.local), wires.get("network", profile.network)
    kept = [wire for wire in ("local", "network") if wire not in wires]
    source = name + "".join(f"; {wire} not measured: {profile.source}" for wire in kept)
    found = replace(profile, local=local, network=network, source=source)
    return replace(found, limits=replace(found.limits, slice_bytes=_best_slice(comm, found)))


def check(comm: Communicator, profile: Profile) -> list[Check]:
    """How well plans made with a profile predict. All ranks call it."""
    found: list[Check] = []
    with _with_profile(comm, profile) as tuned:
        for size in SIZES:
            x = np.ones(max(1, size // 4), np.float32)
            plan = tuned.plan("all_reduce", x.size)
            measured = _time(tuned, x, 1 if found and found[-1].measured_s > SLICE_TRIAL_S else ROUNDS)
            found.append(Check(size, plan.algorithm, plan.predicted_s, measured))
    return found


def _best_slice(comm: Communicator, profile: Profile) -> int:
    """The slice by which a large all-reduce is fastest; the present one unless another is clearly better."""
    size = 1 << 20
    while size < 64 << 20:
        x = np.ones(size // 4, np.float32)
        if _time(comm, x, 1) * 2 > SLICE_TRIAL_S:
            break
        size *= 2
    times: dict[int, list[float]] = {each: [] for each in {*SLICES, profile.limits.slice_bytes}}
    for _ in range(ROUNDS):  # in turn, for a shared machine changes its pace
        for each in times:
            limits = replace(profile.limits, slice_bytes=each)
            with _with_profile(comm, replace(profile, limits=limits)) as tried:
                times[each].append(_time(tried, x, 2))
    best = min(times, key=lambda each: median(times[each]))
    present = profile.limits.slice_bytes
    return best if median(times[best]) < WORTH * median(times[present]) else present


def _time(comm: Communicator, x: np.ndarray[tuple[int], np.dtype[np.float32]], rounds: int) -> float:
    """The median time of an all-reduce in place, in seconds, of the rank that took longest; one more before,
    untimed.
    """
    comm.all_reduce(x, "max", out=x)
    times = np.empty(rounds)
    for i in range(rounds):
        comm.barrier()
        begin = time.perf_counter()
        comm.all_reduce(x, "max", out=x)
        times[i] = time.perf_counter() - begin
    return float(np.median(comm.all_reduce(times, "max")))


@contextmanager
def _with_profile(comm: Communicator, profile: Profile) -> Iterator[Communicator]:
    """A communicator of the same ranks that plans with another profile."""
    world, before = comm._world, comm._world.profile
    world.profile = profile
    try:
        tuned = comm.split(0)
    finally:
        world.profile = before
    assert tuned is not None
    try:
        yield tuned
    finally:
        tuned.close()
