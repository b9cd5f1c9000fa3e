"""One pycomm job over all hosts of a lab."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pycomm.errors import InvalidArgument
from pycomm.lab.lab import Lab, LabHost
from pycomm.launch.job import Job
from pycomm.launch.variables import rank_variables


@dataclass(frozen=True)
class LabRank:
    """Where a rank runs, and all its environment variables."""

    host: LabHost
    environment: dict[str, str]


def ranks(lab: Lab, per_host: Sequence[int] | None = None) -> list[LabRank]:
    """The ranks of a job, host by host, with the variables of torchrun and of the lab, which give way to
    PYCOMM_* variables that are set here already.

    Args:
        lab: With at least one host.
        per_host: How many on each host; None: one per NIC.

    Raises:
        InvalidArgument: `per_host` names more or fewer hosts, or a host without ranks.
    """
    sizes = lab.layout.rails if per_host is None else tuple(per_host)
    if len(sizes) != len(lab.hosts):
        raise InvalidArgument(f"ranks for {len(sizes)} hosts are given, but there are {len(lab.hosts)} hosts")
    if min(sizes) < 1:
        raise InvalidArgument("every host runs at least 1 rank")
    hosts = [host for host, size in zip(lab.hosts, sizes, strict=True) for _ in range(size)]
    first = lab.hosts[0]
    variables = rank_variables(sizes, first.address, first.free_port())
    return [
        LabRank(host, {**host.environment(), **os.environ, **own})
        for host, own in zip(hosts, variables, strict=True)
    ]


def job(
    lab: Lab, command: list[str], per_host: Sequence[int] | None = None, timeout_s: float | None = None
) -> Job:
    """A job that runs `command` on all of `ranks(lab, per_host)`; `.run()` returns its exit status.

    Raises:
        InvalidArgument: as `ranks` does.
    """
    members = ranks(lab, per_host)
    environments = [rank.environment for rank in members]
    return Job(command, environments, timeout_s, [rank.host.popen for rank in members])
