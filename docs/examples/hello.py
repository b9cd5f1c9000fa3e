"""pycomm run -n 4 --nodes 2 docs/examples/hello.py"""

import numpy as np

import pycomm

with pycomm.init() as comm:
    x = np.full(4, comm.rank + 1, np.float32)

    total = comm.all_reduce(x)  # a new array; x keeps what it has
    print(f"rank {comm.rank} of {comm.size}: the sum of all ranks' x is {total}")

    parts = comm.all_to_all(np.arange(comm.size) + 10 * comm.rank)
    print(f"rank {comm.rank}: from each rank its part for me: {parts}")

    work = comm.all_reduce(x, op=pycomm.MAX, out=x, async_op=True)  # in place, in the background
    work.wait()
    comm.barrier()

    if comm.rank == 0:
        print(comm.plan("all_reduce", count=1 << 20).explain())
