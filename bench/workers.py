"""The ranks of one library as worker processes that are kept alive and asked, one request after another."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.peers import ROOT, Job, Process, peer_class
from bench.placement import Placement
from bench.worker import SOCKET

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 120.0


class WorkerFailed(RuntimeError):
    """A worker died, or did not answer in time; says what it wrote last."""


class Workers:
    """Starts the ranks of a library and speaks with all of them at once. To be used in a `with` statement.

    They run on this machine, or on the hosts of a lab if there is a placement.
    """

    def __init__(self, library: str, ranks: int, nodes: int = 1, placement: Placement | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pycomm-bench-")
        self.job = Job(library, ranks, nodes, Path(self._folder.name), placement)
        self._output = (self.job.directory / "output").open("w+")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[socket.socket] = []
        self._streams: list[Any] = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Sends all ranks the same request; returns their answers in order of rank."""
        text = json.dumps(request) + "\n"
        try:
            for stream in self._streams:
                stream.write(text)
                stream.flush()
            return [json.loads(stream.readline()) for stream in self._streams]
        except (OSError, ValueError) as error:
            raise self._failure(f"did not answer {text.strip()}") from error

    def close(self) -> None:
        """Lets the workers leave; ends those that do not, and whatever they started."""
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        deadline = time.monotonic() + 10 if self._streams else 0
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0, deadline - time.monotonic()))
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(3)
        self._output.close()
        self._folder.cleanup()

    def _start(self) -> None:
        job = self.job
        worker = ["-m", "bench.worker", job.library, str(job.ranks), str(job.nodes), str(job.directory)]
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(job.directory / SOCKET))
            listener.listen(job.ranks)
            for process in peer_class(job.library).processes(job, worker):
                self._processes.append(self._popen(process))
            self._accept(listener)

    def _popen(self, process: Process) -> "subprocess.Popen[bytes]":
        popen: Any = subprocess.Popen
        if self.job.placement and process.host is not None:
            popen = self.job.placement.lab.hosts[process.host].popen
        started: subprocess.Popen[bytes] = popen(
            process.command,
            env=os.environ | process.environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that close() can end all that a launcher started
        )
        return started

    def _accept(self, listener: socket.socket) -> None:
        """Waits until every rank has joined its library and said so."""
        deadline = time.monotonic() + START_TIMEOUT_S
        listener.settimeout(0.1)
        while len(self._connections) < self.job.ranks:
            if any(process.poll() for process in self._processes) or time.monotonic() > deadline:
                raise self._failure("did not start")
            with contextlib.suppress(TimeoutError):
                self._connections.append(listener.accept()[0])
        streams = {}
        for connection in self._connections:
            connection.settimeout(ANSWER_TIMEOUT_S)
            stream = connection.makefile("rw")
            try:
                streams[json.loads(stream.readline())["rank"]] = stream
            except (OSError, ValueError) as error:
                raise self._failure("did not join") from error
        self._streams = [streams[rank] for rank in sorted(streams)]

    def _failure(self, what: str) -> WorkerFailed:
        time.sleep(0.3)  # for the last words of whoever died
        self._output.flush()
        words = Path(self._output.name).read_text(errors="replace")[-2000:]
        return WorkerFailed(f"a worker of {self.job.library} {what}; it wrote:\n{words or '(nothing)'}")
