"""The process that holds a lab's namespaces, seen from those that use them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pycomm.admission.deadline import Deadline
from pycomm.errors import Error, InvalidArgument, Unsupported
from pycomm.lab import namespaces
from pycomm.lab.namespaces import CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUTS, MESSAGE_BYTES

NAME = (
    b"\0pycomm-lab"  # an abstract Unix address: it exists as long as the lab that has it, and only one has it
)
END_TIMEOUT_S = 10.0
POLL_S = 0.002
ANSWER_TIMEOUT_S = 30.0
TOOL_PATHS = ("/usr/sbin", "/sbin")  # where ip and tc are, also for a user whose PATH leaves them out

# In the order in which they are entered: the last one changes what a path means.
_KINDS = {"net": CLONE_NEWNET, "uts": CLONE_NEWUTS, "mnt": CLONE_NEWNS}


class Holder:
    """A running holder. `spaces` gives, for each namespace's name, its descriptors in the holder, by kind."""

    def __init__(self, pid: int, spaces: dict[str, dict[str, int]]) -> None:
        self.pid = pid
        self.spaces = spaces
        self._pidfd = os.pidfd_open(pid)
        self._process: subprocess.Popen[bytes] | None = None  # if it is our child
        self._control: socket.socket | None = None  # it ends when this is closed
        self._started: list[subprocess.Popen[Any]] = []

    @classmethod
    def start(cls, order: dict[str, Any], files: Sequence[int], listener: socket.socket | None) -> Holder:
        """Starts one, and has it make the namespaces.

        Args:
            order: See `namespaces.hold`.
            files: Descriptors that it shall keep open, under the same numbers.
            listener: Where it shall answer once told to stay; None: it never stays.

        Raises:
            Unsupported: this process may not, or the kernel cannot, make a namespace; the text says which.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        creator = os.pidfd_open(os.getpid())
        kept = [theirs.fileno(), creator] + ([] if listener is None else [listener.fileno()])
        command = [sys.executable, "-I", "-S", namespaces.__file__, *map(str, kept)]
        try:
            with _children_elsewhere(lambda: namespaces.unshare(CLONE_NEWPID)):
                process = subprocess.Popen(
                    command if listener else [*command, "-1"],
                    pass_fds=[*kept, *files],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                )
        except OSError as why:
            raise _unsupported(str(why.strerror)) from None
        finally:
            theirs.close()
            os.close(creator)
        holder = cls(process.pid, {})
        holder._process, holder._control = process, ours
        try:
            holder._begin(order)
        except BaseException:
            holder.end()
            raise
        return holder

    def _begin(self, order: dict[str, Any]) -> None:
        assert self._control is not None
        self._control.settimeout(ANSWER_TIMEOUT_S)
        try:
            self._control.send(json.dumps(order).encode())
            report = json.loads(self._control.recv(MESSAGE_BYTES) or b'{"error": "its process died"}')
        except OSError as why:
            raise _unsupported(f"its process does not answer ({why})") from None
        if "error" in report:
            raise _unsupported(report["error"])
        self.spaces = report

    @classmethod
    def find(cls) -> tuple[Holder, dict[str, Any]]:
        """The one that was told to stay, and what it was told to tell.

        Raises:
            InvalidArgument: there is none.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(ANSWER_TIMEOUT_S)
            try:
                client.connect(NAME)
                pid, user, _ = struct.unpack(
                    "3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                )
                if user != 0:
                    raise Unsupported(f"user {user} (pid {pid}) has taken the name of root's lab")
                holder = cls(pid, {})  # before it answers: so it is no other process with the same number
                client.send(b"?")
                text = client.recv(MESSAGE_BYTES)
                if not text:
                    raise ConnectionResetError  # it is just ending
            except OSError:
                raise InvalidArgument("no lab is up: start one with `pycomm lab up`") from None
        told = json.loads(text)
        holder.spaces = told.pop("spaces")
        return holder, told

    def stay(self, told: dict[str, Any]) -> None:
        """Lets it outlive this process; `find` will return `told`."""
        assert self._control is not None
        self._control.send(json.dumps({**told, "spaces": self.spaces}).encode())

    def alive(self) -> bool:
        """False once it has ended: then the namespaces are gone too."""
        return self._pidfd >= 0 and not select.select([self._pidfd], [], [], 0)[0]

    def path(self, name: str) -> str:
        """Of the file of a network namespace, as ip(8) takes it."""
        return f"/proc/{self.pid}/fd/{self.spaces[name]['net']}"

    def popen(self, name: str, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """subprocess.Popen, in the namespaces called `name`. The process is a child of this one.

        Raises:
            InvalidArgument: the lab has ended.
            OSError: as subprocess.Popen does.
        """
        with self._opened(name) as (pids, entered):
            options["preexec_fn"] = _entering(entered, options.get("preexec_fn"))
            with _children_elsewhere(lambda: namespaces.setns(pids, CLONE_NEWPID)):
                process: subprocess.Popen[Any] = subprocess.Popen(command, **options)
        self._started = [other for other in self._started if other.poll() is None] + [process]
        return process

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """The PID namespace, and what else there is to enter, in order, as descriptors and kinds."""
        own = self.spaces[name]
        paths = [
            f"/proc/{self.pid}/ns/pid",
            *(f"/proc/{self.pid}/fd/{own[kind]}" for kind in _KINDS if kind in own),
        ]
        with contextlib.ExitStack() as opened:
            descriptors = []
            try:
                for path in paths:
                    descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                    opened.callback(os.close, descriptors[-1])
            except OSError:
                raise InvalidArgument("this lab has ended") from None
            if not self.alive():  # asked last: the files were its own, not those of a successor of its number
                raise InvalidArgument("this lab has ended")
            yield (
                descriptors[0],
                list(zip(descriptors[1:], [_KINDS[k] for k in _KINDS if k in own], strict=True)),
            )

    def free_port(self, name: str) -> int:
        """A TCP port that is free now in the network namespace called `name`."""
        found: list[int] = []

        def look(descriptor: int) -> None:
            namespaces.setns(descriptor, CLONE_NEWNET)  # of this thread, which ends here
            with socket.create_server(("", 0)) as server:
                found.append(server.getsockname()[1])

        with self._opened(name) as (_, entered):
            thread = threading.Thread(target=look, args=(entered[0][0],))
            thread.start()
            thread.join()
        return found[0]

    def run(self, name: str, command: Sequence[str], text: str = "") -> str:
        """Runs a tool of iproute2 in the namespaces called `name` and returns what it prints.

        Raises:
            Unsupported: it is not there, or failed; the text has its own words.
        """
        tool = shutil.which(command[0], path=os.pathsep.join((os.environ.get("PATH", ""), *TOOL_PATHS)))
        if tool is None:
            raise Unsupported(f"there is no {command[0]} here: install iproute2")
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with self.popen(name, [tool, *command[1:]], text=True, **pipes) as process:
            output, complaint = process.communicate(text)
        if process.returncode != 0:
            words = " ".join(complaint.split()) or f"status {process.returncode}"
            raise Unsupported(f"`{' '.join(command)}` failed in {name}: {words}")
        return str(output)

    def end(self) -> None:
        """Kills it, and with it every process in the lab; returns when all that they held is released.

        Raises:
            Error: it still holds it after 10 s.
        """
        if self._pidfd < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if self._control is not None:
            self._control.close()
        # The kernel lets the first process of a PID namespace go only when all others have been waited for.
        for process in self._started:
            process.wait()
        limit = Deadline(END_TIMEOUT_S)
        while not (released := self._released()) and not limit.passed():
            time.sleep(POLL_S)
        if self._process is not None and not self.alive():
            self._process.wait()
        os.close(self._pidfd)
        self._pidfd = -1
        if not released:
            raise Error(
                f"process {self.pid}, which holds the lab, was killed but has not ended after {limit.text()}"
            )

    def _released(self) -> bool:
        """True if it holds no descriptor and no namespace. It may still wait for processes of the lab to be
        collected, by launchers that started them or that have died.
        """
        if not self.alive():
            return True
        try:
            return not os.listdir(f"/proc/{self.pid}/fd") and not os.readlink(f"/proc/{self.pid}/ns/net")
        except OSError:  # it has no namespaces any more
            return True


def _unsupported(why: str) -> Unsupported:
    return Unsupported(
        f"a namespace cannot be made: {why}; a lab needs root and a kernel with network, mount, UTS and "
        f"PID namespaces (in a container: --privileged)"
    )


@contextlib.contextmanager
def _children_elsewhere(move: Callable[[], None]) -> Iterator[None]:
    """Children of this thread begin in the PID namespace that `move` chooses; it itself never moves."""
    own = namespaces.open_namespace(CLONE_NEWPID)
    try:
        move()
        try:
            yield
        finally:
            namespaces.setns(own, CLONE_NEWPID)
    finally:
        os.close(own)


def _entering(entered: Sequence[tuple[int, int]], then: Callable[[], object] | None) -> Callable[[], None]:
    """Run in the child, between fork and exec."""

    def enter() -> None:
        here = os.getcwd()
        for descriptor, kind in entered:
            namespaces.setns(descriptor, kind)
        os.chdir(here)  # entering mounts had led to their root
        if then is not None:
            then()

    return enter
