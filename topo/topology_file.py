"""Topology files: what somebody who knows the network says of a host's NICs.

    {"format": "pycomm-topology-1",
     "nics": {"nic0": {"rail": 0, "bit_per_s": 200000000}, "nic1": {"rail": 1}}}

Every host has its own, for the same name can be another rail elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pycomm.topo.topology import MAX_RAIL

FORMAT = "pycomm-topology-1"
KEYS = ("rail", "bit_per_s")


@dataclass(frozen=True)
class NicSpec:
    """What is said of one NIC: the rail that it is on, and its rate, None where that is left out."""

    rail: int
    bit_per_s: int | None = None


def parse(text: str) -> dict[str, NicSpec]:
    """Reads a topology file: the NICs by name.

    Raises:
        ValueError: it is not JSON or not of this format; the text names the place.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise ValueError(f'"format" is {found!r}: this pycomm reads "{FORMAT}"')
    _check_keys("the file", data, ("format", "nics"))
    nics = data.get("nics")
    if not isinstance(nics, dict) or not nics:
        raise ValueError('"nics" is an object with an entry for each NIC, such as {"nic0": {"rail": 0}}')
    return {name: _spec(f"nics.{name}", entry) for name, entry in nics.items()}


def _spec(where: str, entry: object) -> NicSpec:
    if not isinstance(entry, dict):
        raise ValueError(f'{where}: expected an object such as {{"rail": 0}}, not {entry!r}')
    _check_keys(where, entry, KEYS)
    return NicSpec(
        _rail(f"{where}.rail", entry.get("rail")), _rate(f"{where}.bit_per_s", entry.get("bit_per_s"))
    )


def _rail(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_RAIL:
        raise ValueError(f"{where}: expected a number from 0 to {MAX_RAIL}, not {value!r}")
    return value


def _rate(where: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value < float("inf"):
        raise ValueError(f"{where}: expected bits per second, at least 1, not {value!r}")
    return int(value)


def _check_keys(where: str, data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(known)}")
