"""`pycomm info`: what this pycomm is, has and is set to."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import pycomm
from pycomm import _C, settings
from pycomm.errors import InvalidArgument
from pycomm.machine import usable_cpus
from pycomm.namesake import namesake
from pycomm.nics import interfaces
from pycomm.offer import offer, state
from pycomm.wiring import choice

HELP = "Prints the build, the machine, what is optional and missing, and every setting with its source."

PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")  # Documentation/admin-guide/LSM/Yama.rst

OPTIONAL = {
    "ml_dtypes": "bfloat16 in NumPy",
    "mpi4py": "pycomm.init(MPI.COMM_WORLD)",
    "matplotlib": "pycomm bench --plot",
    "torch": "make bench: the comparison with gloo",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(arguments: argparse.Namespace) -> int:
    """Prints everything."""
    for title, rows in (
        ("build", _build()),
        ("machine", _machine()),
        ("networks, between machines", _networks()),
        ("optional", _optional()),
        ("settings", _settings()),
    ):
        print(title)
        found = list(rows)
        width = max(len(name) for name, _ in found)
        for name, value in found:
            print(f"  {name:<{width}}  {value}")
    other = namesake()
    if other:
        print(f"\n{other}")
    return 0


def _build() -> Iterator[tuple[str, str]]:
    yield "pycomm", f"{pycomm.__version__} in {Path(pycomm.__file__).parent}"
    yield "core", Path(_C.__file__).name
    yield "reductions", _C.instruction_set()
    yield "python", f"{platform.python_version()}, numpy {np.__version__}"
    yield "transports", "shared memory, tcp"


def _machine() -> Iterator[tuple[str, str]]:
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}"
    yield "usable CPUs", str(usable_cpus())
    yield "single copy", _single_copy()
    for interface in interfaces():
        yield f"interface {interface.name}", state(interface)


def _networks() -> Iterator[tuple[str, str]]:
    """What this host would offer to others, as far as it can be known alone."""
    given = settings.read()
    try:
        offered = offer(given, interfaces(), None)
    except InvalidArgument as error:
        yield "none", str(error)
        return
    here = {"": offered}
    if offered.explicit:
        for each in choice.named(here)[""]:
            yield each.nic.name, f"rail {each.rail}, by {offered.source}"
        return
    groups = choice.candidates(here)
    for turn, group in enumerate(groups):
        for rail, row in enumerate(group):
            last = "bridge or tunnel" if row.nics[""].overlay else "slower"
            why = (
                f"rail {rail}, if all machines have it and reach it"
                if turn == 0
                else f"{last}: a last resort"
            )
            yield row.name, why
    if not groups:
        yield "none", "no interface could reach another machine"


def _single_copy() -> str:
    """Whether ranks may read each other's memory, as far as can be told without a second one."""
    with contextlib.suppress(OSError):
        scope = PTRACE_SCOPE.read_text().strip()
        if scope != "0":
            return f"no: {PTRACE_SCOPE} is {scope}, so large messages inside a node are copied twice"
    return "yes, for large messages inside a node; the log (PYCOMM_LOG=info) says whether it is refused"


def _optional() -> Iterator[tuple[str, str]]:
    for name, use in OPTIONAL.items():
        if importlib.util.find_spec(name) is None:
            yield name, f"missing ({use})"
        else:
            yield name, f"{_version(name)} ({use})"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _settings() -> Iterator[tuple[str, str]]:
    given = settings.read()
    for setting in settings.SETTINGS:
        value = getattr(given, setting.name.lower())
        shown = "not set" if value is None else value
        yield setting.variable, f"{shown}  [{given.sources[setting.name]}]  {setting.meaning}"
