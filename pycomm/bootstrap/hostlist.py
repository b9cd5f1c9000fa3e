"""Slurm's lists of host names, such as "node[01-03,7],login": see scontrol(1), "show hostnames".

    list   = part {"," part}        commas inside brackets do not count
    part   = {text | "[" range {"," range} "]"}
    range  = number ["-" number]    of as many digits as the first has, at least

With several brackets the last one runs fastest.
"""

from __future__ import annotations

import itertools
import re

from pycomm.errors import InvalidArgument

MOST_HOSTS = 1 << 16
_PART = re.compile(r"((?:[^\[\],\s]|\[[^\[\]\s]*\])+)(,|$)")
_PIECE = re.compile(r"\[([^\]]*)\]|([^\[]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


def expand(text: str) -> list[str]:
    """The names in a list, in its order.

    Raises:
        InvalidArgument: it is no such list, or has more than 65536 names.
    """
    found: list[str] = []
    at = 0
    while at < len(text) or not found:
        part = _PART.match(text, at)
        if part is None or (part[2] and part.end() == len(text)):
            raise _malformed(text)
        found += _names(part[1], text)
        if len(found) > MOST_HOSTS:
            raise InvalidArgument(f"the host list {text!r} has more than {MOST_HOSTS} names")
        at = part.end()
    return found


def _names(part: str, text: str) -> list[str]:
    choices: list[list[str]] = []
    count = 1
    for ranges, plain in _PIECE.findall(part):
        choices.append([plain] if plain else [n for each in ranges.split(",") for n in _numbers(each, text)])
        count *= len(choices[-1])
        if count > MOST_HOSTS:
            raise InvalidArgument(f"the host list {text!r} has more than {MOST_HOSTS} names")
    return ["".join(each) for each in itertools.product(*choices)]


def _numbers(text: str, whole: str) -> list[str]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise _malformed(whole)
    low, high = found[1], found[2] or found[1]
    if int(high) < int(low) or int(high) - int(low) >= MOST_HOSTS:
        raise _malformed(whole)
    return [f"{number:0{len(low)}d}" for number in range(int(low), int(high) + 1)]


def _malformed(text: str) -> InvalidArgument:
    return InvalidArgument(f"{text!r} is not a host list such as node[01-03,7],login")
