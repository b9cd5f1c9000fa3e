"""mpiexec -n 4 python docs/examples/mpi4py_hello.py

Without an MPI of your own: make setup, then bench/mpirun mpich -n 4 python docs/examples/mpi4py_hello.py
"""

import numpy as np
from mpi4py import MPI

import pycomm

with pycomm.init(MPI.COMM_WORLD) as comm:  # any communicator of mpi4py's, such as one that Split returned
    x = np.arange(8, dtype=np.float64) + comm.rank
    ours = comm.all_reduce(x)

    theirs = np.empty_like(x)
    MPI.COMM_WORLD.Allreduce(x, theirs)
    assert (ours == theirs).all()
    print(f"rank {comm.rank} of {comm.size}: pycomm and MPI agree on {ours}")
