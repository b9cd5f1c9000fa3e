"""What the person who started a benchmark sees of it: progress, table, JSON lines, plot."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from pycomm.bench import table
from pycomm.bench.measure import Row
from pycomm.bench.plot import plot
from pycomm.bench.progress import Progress
from pycomm.bench.record import Record, write_json_lines
from pycomm.bench.sizes import format_size


class Report:
    """Prints the table while it grows. `finish` writes the files and says whether all results were right."""

    def __init__(self, collective: str, rows: int, json_file: Path | None, plot_file: Path | None) -> None:
        self._records: list[Record] = []
        self._json_file = json_file
        self._plot_file = plot_file
        self._progress = Progress(rows)
        print(table.header(collective), flush=True)

    def begin(self, size: int) -> None:
        """Shows, to a person who watches, which size is being measured."""
        self._progress.step(format_size(size))

    def add(self, row: Row) -> None:
        """Prints one row."""
        self._progress.clear()
        print(table.row(row.out_of_place, row.in_place), flush=True)
        self._records += [record for record in (row.out_of_place, row.in_place) if record is not None]

    def finish(self) -> bool:
        """Prints the verdict, writes the files; True if no wrong element was counted."""
        self._progress.clear()
        print(table.footer(self._records), flush=True)
        if self._json_file:
            write_json_lines(self._json_file, self._records)
        if self._plot_file:
            plot(self._records, self._plot_file)
        return not any(record.wrong for record in self._records)


class RemoteReport:
    """A report that another process shows: what this one says goes there as JSON lines."""

    def __init__(self, path: Path) -> None:
        self._stream: TextIO = path.open("w", buffering=1)

    def begin(self, size: int) -> None:
        """See Report."""
        print(json.dumps({"begin": size}), file=self._stream)

    def add(self, row: Row) -> None:
        """See Report."""
        print(json.dumps({"add": asdict(row)}), file=self._stream)

    def finish(self) -> bool:
        """Leaves the verdict to who shows the report."""
        self._stream.close()
        return True


@contextmanager
def shown(report: Report, path: Path) -> Iterator[None]:
    """Makes a named pipe at `path`; while in the context, what a RemoteReport writes there is shown."""
    os.mkfifo(path, 0o600)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(path, os.O_WRONLY)  # ours, so that the pipe ends when we say so and no earlier
    os.set_blocking(reader, True)

    def show() -> None:
        with os.fdopen(reader) as lines:
            for line in lines:
                _show(report, json.loads(line))

    thread = threading.Thread(target=show, name="pycomm-bench-report")
    thread.start()
    try:
        yield
    finally:
        os.close(writer)
        thread.join()


def _show(report: Report, message: dict[str, Any]) -> None:
    if "begin" in message:
        report.begin(message["begin"])
    else:
        sides = (message["add"][side] for side in ("out_of_place", "in_place"))
        report.add(Row(*(side and Record(**side) for side in sides)))
