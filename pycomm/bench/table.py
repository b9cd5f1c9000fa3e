"""The table of nccl-tests: one row a size, out of place on the left, in place on the right."""

from collections.abc import Sequence

from pycomm.bench.bandwidth import BUSBW_FACTORS
from pycomm.bench.record import Record

_WHAT = "{:>12}  {:>12}  {:>9}  {:>8}  {:>5}"
_HOW = "  {:>9}  {:>8}  {:>8}  {:>7}"


def header(collective: str) -> str:
    """The head of the table, comments to whoever parses it."""
    blank = _WHAT.format("", "", "", "", "")
    sides = "".join(f"  {side:^38}" for side in ("out of place", "in place"))
    columns = _WHAT.format("size", "count", "type", "redop", "root")
    columns += 2 * _HOW.format("time", "algbw", "busbw", "#wrong")
    units = _WHAT.format("(B)", "(elements)", "", "", "") + 2 * _HOW.format("(us)", "(GB/s)", "(GB/s)", "")
    factor = (
        f"# busbw = algbw x {BUSBW_FACTORS[collective]}; time: median over iterations of the slowest rank"
    )
    return "\n".join([factor, *("#" + line.rstrip() for line in (blank + sides, columns, units))])


def row(out_of_place: Record | None, in_place: Record | None) -> str:
    """One size. A side that was not measured is left with dashes."""
    record = out_of_place or in_place
    if record is None:
        raise ValueError("a row needs at least one record")
    root = "-1" if record.root is None else record.root
    left = _WHAT.format(record.bytes, record.count, record.dtype, record.redop or "none", root)
    return " " + left + _side(out_of_place) + _side(in_place)


def footer(records: Sequence[Record]) -> str:
    """The verdict and the mean bus bandwidth, as nccl-tests ends its table."""
    checked = [record.wrong for record in records if record.wrong is not None]
    verdict = f"{sum(checked)} {'FAILED' if sum(checked) else 'OK'}" if checked else "not checked"
    mean = sum(record.busbw_GBps for record in records) / max(1, len(records))
    return f"# Wrong values          : {verdict}\n# Mean busbw (GB/s)     : {mean:.4g}"


def _side(record: Record | None) -> str:
    if record is None:
        return _HOW.format("-", "-", "-", "-")
    wrong = "N/A" if record.wrong is None else record.wrong
    figures = (record.median_us, record.algbw_GBps, record.busbw_GBps)
    return _HOW.format(*(_figure(value) for value in figures), wrong)


def _figure(value: float) -> str:
    """Four figures at most, without exponents: 0.0312, 3.12, 312.5, 31250."""
    decimals = 4 if value < 1 else 2 if value < 1000 else 1 if value < 1e5 else 0
    return f"{value:.{decimals}f}"
