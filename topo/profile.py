"""Profiles: what moving and reducing bytes costs on a machine, and the limits its executor runs with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pycomm.topo.topology import stable_digest

PICOSECONDS = 10**12  # in a second
MEBI = 2**20
MAX_STREAMS = 16


@dataclass(frozen=True)
class Wire:
    """What one message costs on one kind of transport, in seconds.

    A message of b bytes that is reduced on arrival takes ``alpha + message + b · beta + b · gamma``.

    Attributes:
        alpha: Latency: from the sender's decision to the receiver's, during which both can do other things.
        message: The time of its own that a rank spends on each message.
        beta: Seconds per byte. Its reciprocal is the rate of one rank inside a node, of one NIC between
            nodes.
        gamma: Seconds per reduced byte, beyond beta.
    """

    alpha: float
    message: float
    beta: float
    gamma: float

    def __post_init__(self) -> None:
        """Refuse what no machine has.

        Raises:
            ValueError: For a negative or infinite figure, or a wire of infinite rate.
        """
        for name, value in asdict(self).items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} is a time in seconds from 0 on, not {value!r}")
        if self.beta == 0:
            raise ValueError("beta must be above 0: no wire moves bytes in no time")

    @cached_property
    def alpha_ps(self) -> int:
        """`alpha` in whole picoseconds."""
        return round(self.alpha * PICOSECONDS)

    @cached_property
    def message_ps(self) -> int:
        """`message` in whole picoseconds."""
        return round(self.message * PICOSECONDS)

    @cached_property
    def beta_ps_per_mebibyte(self) -> int:
        """`beta` in whole picoseconds per MiB: a byte takes less than one on fast wires."""
        return max(1, round(self.beta * PICOSECONDS * MEBI))

    @cached_property
    def gamma_ps_per_mebibyte(self) -> int:
        """`gamma` in whole picoseconds per MiB."""
        return round(self.gamma * PICOSECONDS * MEBI)


@dataclass(frozen=True)
class Limits:
    """What the executor and the transports are told; they keep no policy of their own.

    Attributes:
        slice_bytes: The most bytes that the executor streams at a time.
        single_copy_bytes: From this size on a message stays in its sender's memory, for a receiver on the
            same node to copy from there. Smaller ones are copied twice, through shared memory.
        spin_s: How long a wait spins where every rank of the node has a core. Where not, it never spins.
        yield_s: How long a wait then yields the core before it sleeps.
        nap_s: The longest sleep between two looks at the deadline and at the peers' lives.
        streams: Sockets for each peer and NIC. More than one where a switch or cloud caps single flows.
    """

    slice_bytes: int = 128 * 1024
    single_copy_bytes: int = 768 * 1024
    spin_s: float = 20e-6
    yield_s: float = 100e-6
    nap_s: float = 20e-3
    streams: int = 1

    def __post_init__(self) -> None:
        """Refuse limits that nothing could run with.

        Raises:
            ValueError: For a slice or a single copy without a cache line, a negative time, or no stream or
                too many.
        """
        for name in ("slice_bytes", "single_copy_bytes"):
            if getattr(self, name) < 64:
                raise ValueError(f"{name} is at least 64, one cache line, not {getattr(self, name)}")
        if not isinstance(self.streams, int) or not 1 <= self.streams <= MAX_STREAMS:
            raise ValueError(f"streams is a number from 1 to {MAX_STREAMS}, not {self.streams!r}")
        for name in ("spin_s", "yield_s", "nap_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is a time in seconds from 0 on, not {getattr(self, name)!r}")


# Medians on a two-core virtual machine (AVX-512, 11 GB/s copies that miss every cache), which other machines
# replace.
DEFAULT_SOURCE = "defaults: a two-core virtual machine, TCP over loopback"
# Inside a node. alpha: one way of a cache line, 75-260 ns. message: a slot's header and counter. beta: one
# copy of 256 MiB, 11.4 GB/s: large messages are copied once; small ones twice, but in the cache. gamma: a +=
# b on 256 KiB of float32 that are in the cache, 29 GB/s. (single_copy_bytes: between two ranks messages of
# 512 KiB take 1.2 times as long with one copy by process_vm_readv as with two through slots, of 1 MiB 0.9
# times, of 8 MiB 0.7 times; where four ranks share two CPUs both are alike at 256-512 KiB. all_reduce,
# interleaved call by call.)
DEFAULT_SHM = Wire(alpha=250e-9, message=50e-9, beta=1 / 11.4e9, gamma=1 / 29e9)
# Between nodes. alpha: 8 B one way with a receiver that sleeps, 16-19 us. message: the same with one that
# spins, 3.8 us, is system calls. beta: 64 MiB, 2.6-3.2 GB/s. gamma: what arrived is read once more, from
# memory: 9.9 GB/s.
DEFAULT_TCP = Wire(alpha=16e-6, message=3.8e-6, beta=1 / 2.9e9, gamma=1 / 9.9e9)


@dataclass(frozen=True)
class Profile:
    """The wire inside nodes, the wire between them, and the limits; immutable, the same on every rank of a
    job.

    Attributes:
        local: The wire between ranks of one node.
        network: The wire between nodes, of one NIC.
        limits: What the executor runs with.
        source: Where the figures come from, for people. Informative: no plan depends on it.
    """

    local: Wire = DEFAULT_SHM
    network: Wire = DEFAULT_TCP
    limits: Limits = field(default_factory=Limits)
    source: str = DEFAULT_SOURCE

    def to_dict(self) -> dict[str, Any]:
        """The profile as JSON has it; `from_dict` gives it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Profile:
        """Read what `to_dict` wrote. What is left out has its default.

        Raises:
            ValueError: For an unknown key, a wire that is not whole, or a figure out of range; it names the
                place.
        """
        known = {"local": Wire, "network": Wire, "limits": Limits}
        if not isinstance(data, Mapping):
            raise ValueError(f"profile: expected an object, not {data!r}")
        _check_keys("profile", data, {*known, "source"})
        parts: dict[str, Any] = {}
        for name, kind in known.items():
            if name in data:
                part = data[name]
                if not isinstance(part, Mapping):
                    raise ValueError(f"profile.{name}: expected an object, not {part!r}")
                _check_keys(f"profile.{name}", part, {each.name for each in fields(kind)})
                _check_numbers(f"profile.{name}", part)
                try:
                    parts[name] = kind(**part)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"profile.{name}: {error}") from error
        return cls(**parts, source=str(data.get("source", "a file that does not say")))

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """Read a file that has what `to_dict` wrote.

        Raises:
            ValueError: If it cannot be read, is not JSON, or is as `from_dict` refuses it.
        """
        try:
            data = json.loads(Path(path).read_bytes())
        except OSError as why:
            raise ValueError(f"it cannot be read: {why.strerror}") from None
        except ValueError as why:  # of JSON, or of its encoding
            raise ValueError(f"it is not JSON: {why}") from None
        return cls.from_dict(data)

    def limited_to(self, bit_per_s: int | None) -> Profile:
        """The same, but between nodes no faster than a NIC of this rate; None is of any rate."""
        if bit_per_s is None or self.network.beta * bit_per_s >= 8:
            return self
        network = replace(self.network, beta=8 / bit_per_s)
        return replace(self, network=network, source=f"{self.source}; NICs of {bit_per_s / 1e9:g} Gbit/s")

    def digest(self) -> str:
        """16 hexadecimal digits, equal where all figures are; the same in every process."""
        return stable_digest({key: value for key, value in self.to_dict().items() if key != "source"})


def _check_keys(where: str, data: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(data) - known)
    if unknown:
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")


def _check_numbers(where: str, data: Mapping[str, Any]) -> None:
    for key, value in data.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{where}.{key}: expected a number, not {value!r}")
