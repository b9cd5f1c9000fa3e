"""Collective communication that knows the topology: every collective stays on its rails.

comm = pycomm.init()           # under `pycomm run` or torchrun; or pycomm.init(MPI.COMM_WORLD)
total = comm.all_reduce(x)     # NumPy arrays, and whatever else has the buffer protocol
"""

from pycomm._version import __version__
from pycomm.errors import Error, InvalidArgument, Mismatch, PeerLost, TimedOut, Unsupported

__all__ = [
    "Error",
    "InvalidArgument",
    "Mismatch",
    "PeerLost",
    "TimedOut",
    "Unsupported",
    "__version__",
]
