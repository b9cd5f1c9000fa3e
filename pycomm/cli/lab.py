"""`pycomm lab`: a small rail-optimised cluster on this machine."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict

from pycomm.cli.run import command_line
from pycomm.errors import InvalidArgument
from pycomm.lab.check import check
from pycomm.lab.counters import Counters
from pycomm.lab.job import job
from pycomm.lab.lab import Lab
from pycomm.lab.layout import Layout
from pycomm.lab.picture import picture
from pycomm.lab.rates import parse_rate
from pycomm.launch.child import dies_with

HELP = (
    "Builds hosts, rails, leaf switches and a spine out of network namespaces, with links of chosen rates, "
    "and runs jobs on them. As root. A lab stays from `up` to `down`; nothing else of the machine is touched."
)

DEFAULT_HOSTS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own commands."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_up(actions.add_parser("up", help="build it, and draw it"))
    _add_run(actions.add_parser("run", help="run a program on all hosts, as one job"))
    inside = actions.add_parser("exec", help="run a command in one host")
    inside.add_argument("host", help="such as h0")
    inside.add_argument("program", nargs=argparse.REMAINDER, help="the command and its arguments")
    inside.set_defaults(act=_exec)
    actions.add_parser("check", help="measure that rails and spine are as built").set_defaults(act=_check)
    counters = actions.add_parser("counters", help="bytes that each link has carried")
    counters.add_argument("--json", action="store_true", help="as JSON")
    counters.set_defaults(act=_counters)
    _add_fault(actions.add_parser("fault", help="cut, black-hole, slow or restore a link"))
    actions.add_parser("down", help="end what runs in it, and remove it").set_defaults(act=_down)


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument(
        "--hosts",
        type=int,
        metavar="N",
        help=f"how many hosts ({DEFAULT_HOSTS}, or as many as --rails lists)",
    )
    up.add_argument(
        "--rails", default="2", metavar="R", help="NICs of every host, or of each, such as 2,2,1 (2)"
    )
    up.add_argument("--rate", default="200mbit", metavar="RATE", help="of every NIC, each way (200mbit)")
    up.add_argument("--spine", metavar="RATE", help="of every leaf's up-link, each way (as --rate)")
    up.set_defaults(act=_up)


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "-n", metavar="RANKS", help="ranks on every host, or on each, such as 2,2,1 (one per NIC)"
    )
    run.add_argument("--timeout", type=float, metavar="S", help="end them all after so many seconds")
    run.add_argument("program", nargs=argparse.REMAINDER, help="script.py, or a command; then its arguments")
    run.set_defaults(act=_run)


def _add_fault(fault: argparse.ArgumentParser) -> None:
    kinds = fault.add_subparsers(dest="kind", metavar="KIND", required=True)
    for kind, summary in (
        ("cut", "pull the cable: the NIC loses its carrier"),
        ("blackhole", "packets vanish, the carrier stays"),
        ("slow", "another rate"),
        ("restore", "as it was built"),
    ):
        one = kinds.add_parser(kind, help=summary)
        one.add_argument("host", help="such as h0")
        one.add_argument("rail", type=int, help="such as 1")
        if kind == "slow":
            one.add_argument("rate", help="such as 20mbit")
    fault.set_defaults(act=_fault)


def run(arguments: argparse.Namespace) -> int:
    """Does one of them and returns the exit status."""
    act: Callable[[argparse.Namespace], int] = arguments.act
    return act(arguments)


def _up(arguments: argparse.Namespace) -> int:
    rails = _numbers("--rails", arguments.rails)
    hosts = arguments.hosts
    if hosts is None:
        hosts = len(rails) if len(rails) > 1 else DEFAULT_HOSTS
    rate = parse_rate(arguments.rate)
    spine = parse_rate(arguments.spine) if arguments.spine else None
    layout = Layout.of(hosts, rails if len(rails) > 1 else rails[0], rate, spine)
    lab = Lab.up(layout)
    _draw(lab)
    print("\npycomm lab run -- script.py runs on it, pycomm lab down removes it")
    return 0


def _draw(lab: Lab) -> None:
    print(picture(lab.layout))
    print(f" TCP in the hosts: {lab.congestion_control}, no slow start after idle, no metrics saved")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.timeout is not None and not 0 < arguments.timeout < math.inf:
        raise InvalidArgument(f"--timeout {arguments.timeout:g}: give a positive number of seconds")
    command = command_line(arguments.program)
    lab = Lab.find()
    counts = None if arguments.n is None else _numbers("-n", arguments.n)
    if counts is not None and len(counts) == 1:
        counts *= len(lab.hosts)
    return job(lab, command, counts, arguments.timeout).run()


def _exec(arguments: argparse.Namespace) -> int:
    command = command_line(arguments.program)
    host = Lab.find().host(arguments.host)
    environment = {**host.environment(), **os.environ}
    try:
        process = host.popen(command, environment, preexec_fn=dies_with(os.getpid()))
    except OSError as why:
        raise InvalidArgument(f"{command[0]} cannot be started: {why.strerror}") from None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to it as well: it decides
    code = process.wait()
    return 128 - code if code < 0 else code


def _check(arguments: argparse.Namespace) -> int:
    lab = Lab.find()
    _draw(lab)
    good = True
    print("\nMbit/s, headers included")
    for finding in check(lab):
        print(f" {finding}", flush=True)
        good = good and finding.good
    print()
    print(_table(lab.counters()))
    if not good:
        print(
            "\na link is slower than built: this machine's CPUs may be too busy, or a fault is set",
            file=sys.stderr,
        )
    return int(not good)


def _counters(arguments: argparse.Namespace) -> int:
    counters = Lab.find().counters()
    print(json.dumps(asdict(counters)) if arguments.json else _table(counters))
    return 0


def _table(counters: Counters) -> str:
    """Bytes: a line for each host, a pair of columns for each rail, and the up-links below."""
    lines = [
        "bytes   " + "".join(f"{f'rail {r} sent':>16}{'received':>16}" for r in range(len(counters.spine_up)))
    ]
    for host, pairs in enumerate(zip(counters.sent, counters.received, strict=True)):
        lines.append(
            f"h{host:<7}" + "".join(f"{out:>16,}{into:>16,}" for out, into in zip(*pairs, strict=True))
        )
    uplinks = zip(counters.spine_up, counters.spine_down, strict=True)
    return "\n".join([*lines, "up-link " + "".join(f"{up:>16,}{down:>16,}" for up, down in uplinks)])


def _fault(arguments: argparse.Namespace) -> int:
    rate = [parse_rate(arguments.rate)] if arguments.kind == "slow" else []
    lab = Lab.find()
    getattr(lab.faults, arguments.kind)(arguments.host, arguments.rail, *rate)
    nic = f"rail {arguments.rail} of {lab.host(arguments.host).name}"
    undone = f"pycomm lab fault restore {arguments.host} {arguments.rail} undoes it"
    print(
        f"{nic} is as it was built" if arguments.kind == "restore" else f"{nic}: {arguments.kind}; {undone}"
    )
    return 0


def _down(arguments: argparse.Namespace) -> int:
    Lab.find().close()
    print("the lab is gone")
    return 0


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidArgument(
            f"{option} {text}: give a number such as 2, or each host's, such as 2,2,1"
        ) from None
