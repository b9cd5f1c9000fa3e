"""All ranks of a job: their output, the first failure, and an end that leaves no process."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TextIO

from pycomm.admission.deadline import Deadline
from pycomm.errors import InvalidArgument, ranks_text
from pycomm.launch.child import Child, Start
from pycomm.machine import allow_open_files

GRACE_S = 3.0  # from the request to end to the kill
FILES = 3  # open files for a child
DRAIN_S = 0.5  # for output that outlives its rank, as of a grandchild
TIMED_OUT = 124  # like timeout(1)
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92)  # ANSI


@dataclass(frozen=True)
class _Source:
    child: Child
    to: TextIO | None  # None: this is the descriptor of the process itself


class Job:
    """Runs `command` once for each environment; `starts` says how each is started, if not on this machine."""

    def __init__(
        self,
        command: list[str],
        environments: list[dict[str, str]],
        timeout_s: float | None,
        starts: Sequence[Start] | None = None,
    ) -> None:
        self._command = command
        self._environments = environments
        self._starts: Sequence[Start] = starts or [subprocess.Popen] * len(environments)
        self._deadline = Deadline(timeout_s) if timeout_s else None
        self._children: list[Child] = []
        self._running: set[Child] = set()
        self._selector = selectors.DefaultSelector()
        self._failed: Child | None = None
        self._signal = 0  # that ended us
        self._kill_at: float | None = None
        self._verdict = ""

    def run(self) -> int:
        """Returns the job's exit status."""
        handlers = {number: signal.signal(number, self._caught) for number in (signal.SIGINT, signal.SIGTERM)}
        wake, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        previous_wake = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._selector.register(wake, selectors.EVENT_READ)
        try:
            self._start()
            while self._running:
                self._step()
            self._drain()
        finally:
            for child in self._children:  # also what a rank has started and left
                child.signal(signal.SIGKILL)
                child.process.wait()
                child.close()
            signal.set_wakeup_fd(previous_wake)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(wake)
            os.close(wake_write)
        return self._status()

    def _start(self) -> None:
        allow_open_files(len(self._environments) * FILES)
        for rank, (environment, start) in enumerate(zip(self._environments, self._starts, strict=True)):
            try:
                child = Child(rank, self._command, environment, start)
            except OSError as why:
                raise InvalidArgument(f"{self._command[0]} cannot be started: {why.strerror}") from None
            self._children.append(child)
            self._running.add(child)
            self._selector.register(child.pidfd, selectors.EVENT_READ, _Source(child, None))
            for pipe, to in ((child.process.stdout, sys.stdout), (child.process.stderr, sys.stderr)):
                assert pipe is not None
                self._selector.register(pipe.fileno(), selectors.EVENT_READ, _Source(child, to))

    def _step(self) -> None:
        ended = []
        for key, _ in self._selector.select(self._wait_s()):
            if key.data is None:
                os.read(key.fd, 64)
            elif key.data.to is None:
                self._selector.unregister(key.fd)
                ended.append(key.data.child)
            else:
                self._forward(key.fd, key.data)
        for child in ended:
            child.process.wait()
            self._running.discard(child)
            self._forward_rest(child)
        failed = [child for child in ended if child.process.returncode != 0]
        if failed and self._failed is None and not self._verdict:
            # Those that die of a signal first: others may have failed because of them.
            self._failed = min(failed, key=lambda child: (child.process.returncode > 0, child.rank))
            self._end(self._failed.failure(), signal.SIGTERM)
        if self._deadline and self._deadline.passed() and not self._verdict:
            still = ranks_text(sorted(child.rank for child in self._running)) if self._running else "no rank"
            self._end(f"not done after {self._deadline.text()}: {still} still ran", signal.SIGTERM)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            for child in self._running:
                child.signal(signal.SIGKILL)

    def _wait_s(self) -> float | None:
        """Until the next thing that happens by itself."""
        waits = [] if self._kill_at is None else [max(0.0, self._kill_at - time.monotonic())]
        if self._deadline and not self._verdict:
            waits.append(self._deadline.left_s())
        return min(waits, default=None)

    def _end(self, verdict: str, number: signal.Signals) -> None:
        self._verdict = verdict
        self._kill_at = time.monotonic() + GRACE_S
        for child in self._running:
            child.signal(number)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self._signal:  # a second Ctrl-C: no more grace
            self._kill_at = time.monotonic()
            return
        self._signal = number
        self._end(f"ended by {signal.Signals(number).name}", signal.Signals(number))

    def _forward(self, descriptor: int, source: _Source) -> None:
        data = os.read(descriptor, 1 << 16)
        if not data:
            self._selector.unregister(descriptor)
        assert source.to is not None
        lines = source.child.lines(descriptor, data)
        if lines:
            mark = _mark(source.child.rank, source.to)
            source.to.write("".join(f"{mark}{line}\n" for line in lines))
            source.to.flush()

    def _forward_rest(self, child: Child) -> None:
        """What a rank that has ended had written: its last words are wanted before its end is told."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Source) and key.data.child is child and key.data.to is not None:
                while key.fd in self._selector.get_map() and _readable(key.fd):
                    self._forward(key.fd, key.data)

    def _drain(self) -> None:
        limit = Deadline(DRAIN_S)
        while len(self._selector.get_map()) > 1 and not limit.passed():
            for key, _ in self._selector.select(limit.left_s()):
                if key.data is not None:
                    self._forward(key.fd, key.data)
                else:
                    os.read(key.fd, 64)

    def _status(self) -> int:
        if self._verdict:
            print(f"pycomm run: {self._verdict}", file=sys.stderr)
        if self._signal:
            return 128 + self._signal
        if self._failed is not None:
            return self._failed.status()
        return TIMED_OUT if self._verdict else 0


def _mark(rank: int, to: TextIO) -> str:
    if to.isatty() and "NO_COLOR" not in os.environ:
        return f"\033[{COLOURS[rank % len(COLOURS)]}m[{rank}]\033[0m "
    return f"[{rank}] "


def _readable(descriptor: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(0))
