"""What this machine is and has: its identity, and the CPUs we may use."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable
from pathlib import Path

from pycomm.errors import Unsupported

SPARE_FILES = 64  # open files for whatever else a process does


def machine_id() -> str:
    """Equal for two processes only if they share a kernel and a network, so that 127.0.0.1 is one place
    for both.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"


def kernel_of(machine: str) -> str:
    """The part of a machine's id that all processes on one kernel share, whatever their network."""
    return machine.partition("/")[0]


def allow_open_files(more: int) -> None:
    """Raises this process's soft limit on open files so far that it can open `more` of them, and
    some to spare.

    Raises:
        Unsupported: the hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + more + SPARE_FILES
    if needed <= soft:
        return
    if needed > hard:
        raise Unsupported(
            f"this process needs about {needed} open files and may have {hard}: raise the hard limit "
            f"(ulimit -Hn {needed}), or have fewer ranks on this machine"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def usable_cpus() -> int:
    """CPUs that this process may keep busy: its affinity, cut by the quotas of its control groups."""
    return max(1, int(min(len(os.sched_getaffinity(0)), cpu_quota())))


def cpu_quota() -> float:
    """How many CPUs' time the control groups of this process grant; infinite without a quota."""
    cpus = float("inf")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            cpus = min(cpus, _quota(Path("/sys/fs/cgroup"), path, _quota_v2))
        elif "cpu" in controllers.split(","):
            cpus = min(cpus, _quota(Path("/sys/fs/cgroup/cpu"), path, _quota_v1))
    return cpus


def _quota(mount: Path, path: str, read: Callable[[Path], float]) -> float:
    """The least quota of a control group and those around it. Inside a container only the mount may be
    visible.
    """
    group = mount / path.lstrip("/")
    least = float("inf")
    while True:
        with contextlib.suppress(OSError, ValueError):
            least = min(least, read(group))
        if group == mount or mount not in group.parents:
            return least
        group = group.parent


def _quota_v2(group: Path) -> float:
    quota, period = (group / "cpu.max").read_text().split()
    return float("inf") if quota == "max" else int(quota) / int(period)


def _quota_v1(group: Path) -> float:
    quota = int((group / "cpu.cfs_quota_us").read_text())
    period = int((group / "cpu.cfs_period_us").read_text())
    return float("inf") if quota <= 0 else quota / period
