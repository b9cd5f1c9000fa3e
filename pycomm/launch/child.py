"""One rank as a process: started so that it cannot be left behind, its output cut into lines."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # linux/prctl.h
LAST_LINE_LIMIT = 300  # characters of a last line that is quoted

Start = Callable[..., subprocess.Popen[bytes]]
"""Starts a process somewhere, with the arguments of subprocess.Popen."""


class Child:
    """A running rank, leader of its own process group."""

    def __init__(
        self, rank: int, command: list[str], environment: dict[str, str], start: Start = subprocess.Popen
    ) -> None:
        self.rank = rank
        self.process = start(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=dies_with(os.getpid()),
        )
        self.pidfd = os.pidfd_open(self.process.pid)
        self.last_words = ""  # the last line on stderr that says something
        self._parts: dict[int, bytes] = {}

    def lines(self, descriptor: int, data: bytes) -> list[str]:
        """The lines that are complete with `data`, read from one of its pipes; with b"" also what has
        no end.
        """
        text = self._parts.pop(descriptor, b"") + data
        *lines, rest = text.split(b"\n")
        if rest and not data:
            lines.append(rest)
        elif rest:
            self._parts[descriptor] = rest
        found = [line.decode(errors="replace").rstrip("\r") for line in lines]
        assert self.process.stderr is not None
        if descriptor == self.process.stderr.fileno():
            for line in found:
                self.last_words = line.strip() or self.last_words
        return found

    def failure(self) -> str:
        """Why its end was a failure, or "" for a good end. Call once it has ended."""
        code = self.process.returncode
        if code == 0:
            return ""
        how = f"died of {_signal_name(-code)}" if code < 0 else f"exited with status {code}"
        words = self.last_words[:LAST_LINE_LIMIT]
        return f"rank {self.rank} (pid {self.process.pid}) {how}" + (f": {words}" if words else "")

    def status(self) -> int:
        """Its exit status as a shell would say it."""
        code = int(self.process.returncode)
        return 128 - code if code < 0 else code

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to it and to all that it has started, also when it has itself ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Gives back its descriptors."""
        os.close(self.pidfd)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def dies_with(parent: int) -> Callable[[], None]:
    """Run in the child: the kernel kills it when its launcher dies, however that dies."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() not in (parent, 0):  # 0: it is outside our PID namespace; else it has died already
            os._exit(1)

    return ask
