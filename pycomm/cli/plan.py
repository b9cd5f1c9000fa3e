"""`pycomm plan`: how a collective would be done on some nodes and rails, and why; nothing is started."""

from __future__ import annotations

import argparse

from pycomm.bench.sizes import parse_size
from pycomm.errors import InvalidArgument
from pycomm.launch import nodes
from pycomm.topo import Plan, Planner, Profile, Topology
from pycomm.topo.outline import COLLECTIVES, blocks_of
from pycomm.topo.planner import POLICIES
from pycomm.topo.request import DTYPE_BYTES, REDUCING, REDUCTIONS

HELP = (
    "Prints how a collective would be done: its phases with predicted times, the bytes on every rail, "
    "the proof of its programs, and the ways that lost. Nothing is started, so any number of ranks will do."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    add("collective", choices=(*COLLECTIVES, "barrier"))
    add("--ranks", type=int, metavar="N", help="how many ranks (8)")
    add("--nodes", metavar="NODES", help=nodes.HELP + " (1)")
    add(
        "--rails",
        type=_rails,
        metavar="LIST",
        help="instead: the rails of each node's ranks, such as 0,1/2,3",
    )
    add("--bytes", type=_bytes, default=64 << 20, metavar="SIZE", help="the larger buffer of a rank (64M)")
    add(
        "--dtype",
        choices=sorted(DTYPE_BYTES),
        default="float32",
        metavar="DTYPE",
        help="element type (float32)",
    )
    add("--op", choices=REDUCTIONS, default="sum", help="reduction (sum)")
    add("--root", type=int, default=0, metavar="RANK", help="of broadcast and reduce (0)")
    add("--algorithm", metavar="NAME", help="such as ring, hierarchical, or local=direct,rail=ring")
    add("--policy", choices=POLICIES, default="rail_first", help="(rail_first)")
    add("--profile", metavar="FILE", help="price it with what `pycomm tune` measured and saved")
    add("--steps", type=int, metavar="RANK", help="also print the program of one rank")


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan."""
    try:
        plan = _plan(arguments)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    print(plan.explain())
    if arguments.steps is not None:
        if not 0 <= arguments.steps < plan.topology.world_size:
            raise InvalidArgument(f"--steps {arguments.steps}: ranks are 0 … {plan.topology.world_size - 1}")
        print(f"\nrank {arguments.steps}, step by step\n{plan.program(arguments.steps)}")
    return 0


def _plan(arguments: argparse.Namespace) -> Plan:
    topology = _topology(arguments)
    collective = arguments.collective
    element = DTYPE_BYTES[arguments.dtype]
    blocks = 1 if collective == "barrier" else blocks_of(collective, topology.world_size)
    profile = _profile(arguments.profile)
    return Planner(topology, profile, arguments.policy).plan(
        collective,
        count=0 if collective == "barrier" else arguments.bytes // (element * blocks),
        dtype=arguments.dtype,
        reduction=arguments.op if collective in REDUCING else None,
        root=arguments.root,
        algorithm=_algorithm(arguments.algorithm),
    )


def _profile(path: str | None) -> Profile | None:
    try:
        return None if path is None else Profile.load(path)
    except ValueError as why:
        raise ValueError(f"--profile {path}: {why}") from None


def _topology(arguments: argparse.Namespace) -> Topology:
    if arguments.rails is None:
        return Topology.from_sizes(nodes.node_sizes(arguments.nodes, arguments.ranks, 8))
    if arguments.ranks is not None or arguments.nodes is not None:
        raise ValueError("give --ranks and --nodes, or --rails, which says it all")
    return Topology.from_rails(arguments.rails)


def _algorithm(text: str | None) -> str | dict[str, str] | None:
    if text is None or "=" not in text:
        return text
    pairs = [part.partition("=") for part in text.split(",")]
    return {level.strip(): name.strip() for level, _, name in pairs}


def _bytes(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _rails(text: str) -> list[list[int]]:
    try:
        return [[int(rail) for rail in node.split(",")] for node in text.split("/")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} are no rails such as 0,1/2,3") from None
