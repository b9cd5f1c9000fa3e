"""Collective communication that knows the topology: every collective stays on its rails.

Example::

    comm = pycomm.init()        # under `pycomm run` or torchrun; or pycomm.init(MPI.COMM_WORLD)
    y = comm.all_reduce(x)      # NumPy arrays, and whatever else has the buffer protocol
"""

from pycomm._version import __version__
from pycomm.errors import Error, InvalidArgument, Mismatch, PeerLost, TimedOut, Unsupported
from pycomm.namesake import explain_missing_core

try:
    from pycomm._C import Group, Program, ProgramError, Span
except ImportError as why:
    raise ImportError(explain_missing_core(why)) from why

from pycomm.collectives import AVG, MAX, MIN, PRODUCT, SUM
from pycomm.communicator import Communicator
from pycomm.join import init
from pycomm.persistent import Persistent
from pycomm.topo import Place, Plan, Topology
from pycomm.work import Work

__all__ = [
    # joining, and what a communicator is and gives
    "init",
    "Communicator",
    "Work",
    "Persistent",
    "SUM",
    "PRODUCT",
    "MIN",
    "MAX",
    "AVG",
    # plans, and algorithms of one's own
    "Plan",
    "Place",
    "Topology",
    "Program",
    "Group",
    "Span",
    "ProgramError",
    # errors
    "Error",
    "InvalidArgument",
    "TimedOut",
    "PeerLost",
    "Mismatch",
    "Unsupported",
    "__version__",
]
