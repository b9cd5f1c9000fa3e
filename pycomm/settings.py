"""The settings of pycomm: all of them, read from the environment in this one place."""

from __future__ import annotations

import difflib
import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pycomm.errors import InvalidArgument
from pycomm.nic_filter import NicFilter
from pycomm.topo.profile import Profile
from pycomm.topo.topology import MAX_RAIL

PREFIX = "PYCOMM_"
logger = logging.getLogger("pycomm")


def _rail(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError("must not be negative")
    if number > MAX_RAIL:
        raise ValueError(f"must be at most {MAX_RAIL}")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError("must be a positive number of seconds")
    return number


def _label(text: str) -> str:
    if not text.isprintable() or len(text) > 100:
        raise ValueError("must be at most 100 printable characters")
    return text


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError("must be one of " + ", ".join(names))
        return text

    return parse


def _log(text: str) -> str:
    _one_of("warn", "info", "trace")(text.partition(":")[0])
    return text


@dataclass(frozen=True)
class Setting:
    """One setting: its name without the prefix, how its text is read, its default, and what it means."""

    name: str
    parse: Callable[[str], object]
    default: object
    meaning: str
    shared: bool = False  # must be the same on every rank

    @property
    def variable(self) -> str:
        """The environment variable, such as "PYCOMM_NODE"."""
        return PREFIX + self.name


SETTINGS = (
    Setting("NODE", _label, None, "name of this rank's node; splits one machine into several"),
    Setting("NIC", NicFilter.parse, None, "network interfaces: eth,ib prefixes, =eth0 exact, ^lo all but"),
    Setting("TOPO_FILE", str, None, "file that says the rail and the rate of each of this host's NICs"),
    Setting("RAIL", _rail, None, "rail of this rank (default: that of its NIC, or its index on the node)"),
    Setting("TRANSPORT", _one_of("auto", "tcp"), "auto", "tcp: also between ranks of one node", shared=True),
    Setting("ALGORITHM", _label, None, "algorithm of every collective that does not name one", shared=True),
    Setting(
        "POLICY",
        _one_of("rail_first", "cheapest", "strict"),
        "rail_first",
        "which plans are candidates",
        shared=True,
    ),
    Setting("PROFILE", Profile.load, None, "file of measured costs, as `pycomm tune` writes it", shared=True),
    Setting("TIMEOUT_S", _seconds, 300.0, "deadline of every call, and of init, in seconds"),
    Setting(
        "SECRET_FILE", str, None, "file (mode 0600) that holds the job's secret; needed on several hosts"
    ),
    Setting("LOG", _log, None, "warn, info or trace, then :FILE if not to stderr; %h host, %p process"),
)


@dataclass(frozen=True)
class Settings:
    """The settings of one process. `sources` says for each name where its value came from."""

    node: str | None = None
    nic: NicFilter | None = None
    topo_file: str | None = None
    rail: int | None = None
    transport: str = "auto"
    algorithm: str | None = None
    policy: str = "rail_first"
    profile: Profile | None = None
    timeout_s: float = 300.0
    secret_file: str | None = None
    log: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def streams(self) -> int:
        """Sockets for each peer and NIC: the profile's."""
        return (self.profile or Profile()).limits.streams

    def shared(self) -> dict[str, object]:
        """Those that every rank must have alike, by variable; of a profile its digest."""
        values = {s.variable: getattr(self, s.name.lower()) for s in SETTINGS if s.shared}
        return {name: v.digest() if isinstance(v, Profile) else v for name, v in values.items()}


def read(environ: Mapping[str, str] = os.environ) -> Settings:
    """Reads the settings; warns about unknown PYCOMM_* variables.

    Raises:
        InvalidArgument: a value cannot be read; the text names the variable and what it may be.
    """
    _warn_unknown(environ)
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for setting in SETTINGS:
        text = environ.get(setting.variable, "")
        if text == "":
            values[setting.name.lower()] = setting.default
            sources[setting.name] = "default"
            continue
        try:
            values[setting.name.lower()] = setting.parse(text)
        except ValueError as error:
            raise InvalidArgument(
                f"{setting.variable}={text!r} cannot be used: {error} ({setting.meaning})"
            ) from None
        sources[setting.name] = "environment"
    return Settings(sources=sources, **values)  # type: ignore[arg-type]


def _warn_unknown(environ: Mapping[str, str]) -> None:
    known = {setting.name: setting.variable for setting in SETTINGS}
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and variable not in known.values():
            near = difflib.get_close_matches(variable.removeprefix(PREFIX), known, n=1)
            hint = f"did you mean {known[near[0]]}?" if near else "there are " + ", ".join(known.values())
            logger.warning("unknown setting %s: %s", variable, hint)
