"""The libraries that are compared, one file each: how to start its ranks, and how to call it."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from bench.placement import Placement
from pycomm.bench.workload import Buffers, Workload

ROOT = Path(__file__).parents[2]

_CLASSES = {
    "pycomm": "bench.peers.pycomm_:Pycomm",
    "gloo": "bench.peers.gloo:Gloo",
    "mpich": "bench.peers.mpi:Mpi",
    "openmpi": "bench.peers.mpi:Mpi",
    "impi": "bench.peers.mpi:Mpi",
}

LIBRARIES = tuple(_CLASSES)

Call = Callable[[], object]


@dataclass(frozen=True)
class Job:
    """Ranks of one library, and a folder that they share; `placement` if they run on the hosts of a lab."""

    library: str
    ranks: int
    nodes: int
    directory: Path
    placement: Placement | None = None

    @property
    def crowded(self) -> bool:
        """Whether there are more ranks than CPUs, so that waiting must not keep one busy."""
        return self.ranks > len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Process:
    """A process to start: its command, what is added to the environment, and the lab's host it runs on."""

    command: list[str]
    environment: dict[str, str]
    host: int | None = None


class Peer(ABC):
    """One rank of one library, as a worker sees it; the class methods serve who starts the workers."""

    rank_variable: str
    """The environment variables, separated by blanks, of which one tells a worker its rank."""

    @classmethod
    @abstractmethod
    def missing(cls, job: Job) -> str | None:
        """Why this library cannot run this job here; None if it can."""

    @classmethod
    @abstractmethod
    def processes(cls, job: Job, worker: list[str]) -> list[Process]:
        """What to start, so that every rank runs `python *worker`."""

    @abstractmethod
    def __init__(self, job: Job) -> None:
        """Joins the other ranks."""

    @abstractmethod
    def prepare(self, work: Workload, buffers: Buffers) -> Call:
        """A call that runs the collective from `buffers.source` to `buffers.target`.

        Raises NotImplementedError, with the reason, where the library has no such collective.
        """

    def planned_bytes(self, work: Workload) -> int | None:
        """What one call sends between nodes, all ranks together, if the library can tell beforehand."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Leaves the other ranks."""


def peer_class(library: str) -> type[Peer]:
    """The class for a library, loaded now."""
    module, name = _CLASSES[library].split(":")
    return cast(type[Peer], getattr(import_module(module), name))
