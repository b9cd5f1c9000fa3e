"""Records as a picture: time and bus bandwidth over size, a line for each library and arrangement."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pycomm.bench.record import Record
from pycomm.bench.sizes import format_size


def require_matplotlib() -> None:
    """Raises ModuleNotFoundError, saying what to install, where matplotlib is not there."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a plot needs matplotlib: pip install 'pycomm-rail[plot]'") from None


def plot(records: Sequence[Record], path: Path) -> None:
    """Writes the picture; its format follows the name (`.svg`, `.png`, `.pdf`). Needs the extra `plot`."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    time_axes, bandwidth_axes = figure.subplots(1, 2)
    for label, line in _lines(records).items():
        sizes = [record.bytes for record in line]
        style = {"marker": "o", "markersize": 3, "label": label}
        time_axes.plot(sizes, [record.median_us for record in line], **style)
        bandwidth_axes.plot(sizes, [record.busbw_GBps for record in line], **style)
    for axes, title in ((time_axes, "time (µs)"), (bandwidth_axes, "bus bandwidth (GB/s)")):
        _dress(axes, title, sorted({record.bytes for record in records if record.bytes}))
    time_axes.set_yscale("log")
    figure.suptitle(_title(records))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _lines(records: Sequence[Record]) -> dict[str, list[Record]]:
    lines: defaultdict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.bytes):
        place = "in place" if record.in_place else "out of place"
        lines[f"{record.library}, {place}"].append(record)
    return dict(lines)


def _dress(axes: Any, title: str, sizes: Sequence[int]) -> None:
    if sizes:
        axes.set_xscale("log", base=2)
        shown = sizes[:: 1 + len(sizes) // 10]
        axes.set_xticks(shown, [format_size(size) for size in shown])
    axes.set_xlabel("size (bytes)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()


def _title(records: Sequence[Record]) -> str:
    if not records:
        return "nothing measured"
    first = records[0]
    nodes = f" on {first.nodes} nodes" if first.nodes > 1 else ""
    return f"{first.collective}, {first.dtype}, {first.ranks} ranks{nodes}"
