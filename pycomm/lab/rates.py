"""Rates of links, as text."""

from __future__ import annotations

import re

from pycomm.errors import InvalidArgument
from pycomm.lab.layout import check_mbit

_MBIT = {"kbit": 1e-3, "mbit": 1.0, "gbit": 1e3}


def parse_rate(text: str) -> float:
    """Mbit/s of a rate as tc(8) writes it, such as "200mbit" or "2.5gbit".

    Raises:
        InvalidArgument: it is none, or no link can have it.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", text.strip().lower())
    if found is None:
        raise InvalidArgument(f"{text!r} is no rate: write it as 200mbit, 2.5gbit or 1500kbit")
    return check_mbit(float(found[1]) * _MBIT[found[2]])


def rate_text(mbit: float) -> str:
    """Such as "200 Mbit/s" or "2.5 Gbit/s"."""
    return f"{mbit / 1e3:g} Gbit/s" if mbit >= 1e3 else f"{mbit:g} Mbit/s"
