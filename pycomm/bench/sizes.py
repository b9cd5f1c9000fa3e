"""Sizes in bytes as people write them: `8`, `64K`, `1M`, lists and ranges of these."""

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([KMG]?)(?:I?B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of one size: `8`, `64K`, `1M`, `2G` (units are powers of 1024; `KiB` and `KB` mean `K` too)."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size: write whole bytes, or a number with K, M or G")
    return int(match[1]) * _UNITS[match[2].upper()]


def parse_sizes(text: str) -> list[int]:
    """Bytes of a list of sizes and ranges, in the order given, each once.

    A range is `LO:HI` or `LO:HI:FACTOR` and holds LO, LO·FACTOR, LO·FACTOR² … up to HI; FACTOR is 2 unless
    told.
    `8,1K,1M:64M:4` is 8, 1024, 1 MiB, 4 MiB, 16 MiB and 64 MiB.
    """
    sizes: list[int] = []
    for part in text.split(","):
        match part.split(":"):
            case [one]:
                sizes.append(parse_size(one))
            case [low, high]:
                sizes += size_range(parse_size(low), parse_size(high))
            case [low, high, factor]:
                sizes += size_range(parse_size(low), parse_size(high), _parse_factor(factor))
            case _:
                raise ValueError(f"{part!r} is not a size nor a range: write LO:HI or LO:HI:FACTOR")
    return list(dict.fromkeys(sizes))


def size_range(low: int, high: int, factor: int = 2) -> list[int]:
    """LO, LO·FACTOR, LO·FACTOR² … as far as HI."""
    if low > high:
        raise ValueError(f"the range of sizes {low}:{high} is empty: the first must not exceed the second")
    if factor < 2 or low == 0:
        if low == high:
            return [low]
        raise ValueError(f"{low}:{high}:{factor} never ends: start above 0 and use a factor of at least 2")
    sizes = []
    while low <= high:
        sizes.append(low)
        low *= factor
    return sizes


def format_size(size: int) -> str:
    """The shortest exact way to write a size: `format_size(65536) == "64K"`."""
    for unit, scale in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size and size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)


def _parse_factor(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not a factor: write a whole number of at least 2")
    return int(text)
