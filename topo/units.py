"""Bytes and seconds as people read them."""

from __future__ import annotations

from fractions import Fraction

BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
TIME_UNITS = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def bytes_text(amount: int | float | Fraction) -> str:
    """Three digits and a unit, powers of 1024: "48.0 MiB"; whole bytes below 1 KiB."""
    value, unit = float(amount), 0
    while round(value, 1) >= 1000 and unit < len(BYTE_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{_three_digits(value) if unit else round(value)} {BYTE_UNITS[unit]}"


def time_text(seconds: float) -> str:
    """Three digits and a unit: "1.25 ms"."""
    if seconds == 0:
        return "0 s"
    for scale, unit in TIME_UNITS:
        if seconds >= scale * 0.9995:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{seconds * 1e9:.2g} ns"


def counted(number: int, noun: str) -> str:
    """A number and a noun in the right number: "1 node", "2 nodes"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _three_digits(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}"
