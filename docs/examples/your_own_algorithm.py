"""An all-reduce of your own, proved and run: pycomm run -n 4 docs/examples/your_own_algorithm.py"""

import numpy as np

import pycomm


def star(program: pycomm.Program, group: pycomm.Group, data: pycomm.Span) -> None:
    """The first rank collects everything and sends the result back: two messages for each other rank."""
    centre, others = group.at(0), group.ranks[1:]
    if group.index == 0:
        for peer in others:
            program.recv_reduce(peer, data)
        for peer in others:
            program.send(peer, data)
    else:
        program.send(centre, data)
        program.recv(centre, data)


def hasty(program: pycomm.Program, group: pycomm.Group, data: pycomm.Span) -> None:
    """As above, but the others do not wait for the result."""
    for peer in group.ranks[1:]:
        if group.index == 0:
            program.recv_reduce(peer, data)
            program.send(peer, data)
    if group.index:
        program.send(group.at(0), data)


with pycomm.init() as comm:
    comm.install("star", "all_reduce", star)  # every rank's program is proved first
    print(comm.all_reduce(np.ones(3), algorithm="star"))
    try:
        comm.install("hasty", "all_reduce", hasty)
    except pycomm.ProgramError as error:
        print(f"refused: {error}")
