"""One line on a terminal that says how far a benchmark is, and is wiped at the end."""

import shutil
import sys
from types import TracebackType
from typing import TextIO


class Progress:
    """A bar over `total` steps; silent unless a person watches `stream`."""

    def __init__(self, total: int, stream: TextIO = sys.stderr) -> None:
        self._total = max(1, total)
        self._done = 0
        self._stream = stream
        self._watched = stream.isatty()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.clear()

    def step(self, what: str) -> None:
        """Says what is being done now, and counts what was done before as finished."""
        if self._watched:
            cells = 24 * self._done // self._total
            line = f"[{'#' * cells}{'.' * (24 - cells)}] {self._done}/{self._total} {what}"
            self._stream.write("\r\x1b[K" + line[: shutil.get_terminal_size().columns - 1])
            self._stream.flush()
        self._done += 1

    def clear(self) -> None:
        """Wipes the line, so that a row can be printed in its place."""
        if self._watched:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
