"""How the ranks of a job come to reach each other: who is where, shared memory handed over, connections."""

from pycomm.wiring.mesh import Mesh
from pycomm.wiring.wire import wire

__all__ = ["Mesh", "wire"]
