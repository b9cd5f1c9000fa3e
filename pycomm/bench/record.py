"""One measurement: a row of the table, a line of JSON, a point of the plot."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pycomm.bench.bandwidth import algbw, busbw_factor
from pycomm.bench.workload import REDUCING, ROOTED, Workload


@dataclass(frozen=True)
class Record:
    """What was run and how fast it was. Times are the slowest rank's, in µs; bandwidths in 10⁹ bytes/s.

    `wrong` is None where nothing was checked, `redop` and `root` where the collective has none.
    """

    library: str
    collective: str
    algorithm: str
    ranks: int
    nodes: int
    dtype: str
    redop: str | None
    root: int | None
    count: int
    bytes: int
    in_place: bool
    iterations: int
    median_us: float
    p99_us: float
    algbw_GBps: float  # noqa: N815
    busbw_GBps: float  # noqa: N815
    wrong: int | None

    def to_json(self) -> str:
        """This record as one line of JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Setting:
    """What all records of a run share."""

    library: str
    algorithm: str
    nodes: int
    in_place: bool


def make_record(work: Workload, setting: Setting, seconds: Sequence[float], wrong: int | None) -> Record:
    """The record of a workload whose iterations took so many seconds each (the slowest rank's time)."""
    times = np.asarray(seconds)
    median = float(np.median(times))
    bandwidth = algbw(work.size_bytes, median)
    return Record(
        library=setting.library,
        collective=work.collective,
        algorithm=setting.algorithm,
        ranks=work.ranks,
        nodes=setting.nodes,
        dtype=work.dtype.name,
        redop=work.op if work.collective in REDUCING else None,
        root=work.root if work.collective in ROOTED else None,
        count=work.count,
        bytes=work.size_bytes,
        in_place=setting.in_place,
        iterations=len(times),
        median_us=round(median * 1e6, 3),
        p99_us=round(float(np.percentile(times, 99, method="higher")) * 1e6, 3),
        algbw_GBps=round(bandwidth, 6),
        busbw_GBps=round(bandwidth * busbw_factor(work.collective, work.ranks), 6),
        wrong=wrong,
    )


def write_json_lines(path: Path, records: Iterable[Record]) -> None:
    """Writes a file of JSON lines, one a record, and the folder it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(record.to_json() + "\n" for record in records))
