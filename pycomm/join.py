"""`pycomm.init`: from a process to a communicator of all ranks of its job."""

from __future__ import annotations

import os

from pycomm import log, settings
from pycomm.admission.deadline import Deadline
from pycomm.bootstrap import Bootstrap
from pycomm.bootstrap.environment import from_arguments, from_environment
from pycomm.bootstrap.mpi import MpiCommunicator, from_mpi
from pycomm.communicator import Communicator
from pycomm.errors import InvalidArgument
from pycomm.settings import Settings
from pycomm.wiring import wire
from pycomm.world import World


def init(
    comm: MpiCommunicator | None = None,
    *,
    rank: int | None = None,
    size: int | None = None,
    address: str | None = None,
    timeout_s: float | None = None,
) -> Communicator:
    """Meets the other ranks of the job and returns the communicator of all of them.

    Without arguments the job is the one of the environment that `pycomm run`, torchrun or srun has made;
    without that, too, it is this process alone.

    Args:
        comm: An mpi4py communicator, such as MPI.COMM_WORLD: the job is its ranks.
        rank: This rank; with `size` and `address` in place of the environment.
        size: The number of ranks.
        address: Where rank 0 is, such as "10.0.0.1:29500".
        timeout_s: Deadline of init and of every later call that names none; PYCOMM_TIMEOUT_S by default.

    Raises:
        InvalidArgument: the arguments, the environment or a setting is wrong.
        TimedOut: ranks had not come by the deadline; the text names them.
        Mismatch: ranks run different versions or settings.
    """
    given = settings.read()
    log.configure(given.log)
    if timeout_s is None:
        timeout_s = given.timeout_s
    if not 0 < timeout_s < float("inf"):
        raise InvalidArgument(f"init: timeout_s={timeout_s!r} is not a positive number of seconds")
    deadline = Deadline(timeout_s)
    bootstrap = _bootstrap(comm, (rank, size, address), given, deadline)
    try:
        wired = wire(bootstrap, given, deadline)
    finally:
        bootstrap.close()
    mesh, topology = wired.mesh, wired.topology
    world = World(mesh.fabric, topology, wired.processes, wired.crowded, given, mesh, wired.nic_bit_per_s)
    return Communicator(world, tuple(range(topology.world_size)), 0, timeout_s)


def _bootstrap(
    comm: MpiCommunicator | None,
    place: tuple[int | None, int | None, str | None],
    given: Settings,
    deadline: Deadline,
) -> Bootstrap:
    rank, size, address = place
    if comm is not None:
        if place != (None, None, None):
            raise InvalidArgument("init: pass an MPI communicator or rank, size and address, not both")
        return from_mpi(comm, deadline)
    if place == (None, None, None):
        return from_environment(os.environ, given.secret_file, deadline)
    if rank is None or size is None or address is None:
        raise InvalidArgument("init: rank=, size= and address= belong together: pass all three")
    return from_arguments(rank, size, address, given.secret_file, deadline)
