"""`pycomm run`: starts the ranks of a job on this machine and sees that none is left."""

from __future__ import annotations

import argparse
import math
import os
import secrets
import socket
import sys
from pathlib import Path

from pycomm.errors import InvalidArgument
from pycomm.launch import nodes
from pycomm.launch.job import Job
from pycomm.launch.variables import rank_variables

HELP = (
    "Starts a program on n ranks of this machine, with each line of output marked by its rank. "
    "When one rank fails, all are ended, and why is said."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("-n", type=int, required=True, metavar="RANKS", help="how many ranks")
    parser.add_argument("--nodes", metavar="NODES", help=f"split them into virtual {nodes.HELP}")
    parser.add_argument("--timeout", type=float, metavar="S", help="end them all after so many seconds")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module, as python -m does")
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, help="script.py, or a command; then its arguments"
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the job and returns its exit status: that of the first rank that failed, or 128 + its signal."""
    if arguments.timeout is not None and not 0 < arguments.timeout < math.inf:
        raise InvalidArgument(f"--timeout {arguments.timeout:g}: give a positive number of seconds")
    sizes = nodes.node_sizes(arguments.nodes, arguments.n, arguments.n)
    command = command_line(["-m", *arguments.module] if arguments.module else arguments.program)
    # In memory, under a path that processes of this user can open while we live: nothing can be left behind.
    secret = os.memfd_create("pycomm-secret")
    try:
        os.fchmod(secret, 0o600)
        os.write(secret, secrets.token_hex(32).encode())
        path = Path(f"/proc/{os.getpid()}/fd/{secret}")
        environments = rank_environments(sizes, arguments.nodes is not None, path)
        return Job(command, environments, arguments.timeout).run()
    finally:
        os.close(secret)


def command_line(program: list[str]) -> list[str]:
    """What each rank executes: Python for a script or a module, else the command itself. Raises
    InvalidArgument.
    """
    words = program[1:] if program[:1] == ["--"] else program
    if not words:
        raise InvalidArgument("what should the ranks run? Such as: pycomm run -n 4 script.py")
    if words[0] == "-m" or words[0].endswith(".py"):
        if words[0] != "-m" and not os.path.isfile(words[0]):
            raise InvalidArgument(f"there is no script {words[0]} in {os.getcwd()}")
        return [sys.executable, "-u", *words]
    return words


def rank_environments(sizes: list[int], virtual: bool, secret: Path) -> list[dict[str, str]]:
    """The variables that torchrun sets, for each rank; with virtual nodes also each rank's node and rail."""
    environments = []
    nodes_of_ranks = [node for node, size in enumerate(sizes) for _ in range(size)]
    for node, own in zip(nodes_of_ranks, rank_variables(sizes, "127.0.0.1", _free_port()), strict=True):
        own["PYCOMM_SECRET_FILE"] = str(secret)
        if virtual:
            own |= {"PYCOMM_NODE": f"node{node}", "PYCOMM_RAIL": own["LOCAL_RANK"]}
        environments.append({**os.environ, **own})
    return environments


def _free_port() -> int:
    """A port that is free now; should it be taken by then, the ranks find another by themselves."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])
