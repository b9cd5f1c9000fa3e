"""Linux namespaces, and the process that holds those of a lab alive.

Run as a program, this file is the holder: process 1 of a PID namespace of its own, with a descriptor for
every other namespace of the lab. None has a name. When the holder ends, however it ends, the kernel kills
every process of its PID namespace, and takes interfaces, queues and mounts away with the last descriptor.
It ends with its creator, unless it was told to stay. As a program it imports nothing of pycomm: so it
starts in milliseconds.

Sources: namespaces(7), pid_namespaces(7), setns(2), unix(7), linux/sched.h, linux/mount.h, linux/prctl.h.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
PR_SET_NAME = 15
FILES = {
    CLONE_NEWNET: "net",
    CLONE_NEWNS: "mnt",
    CLONE_NEWUTS: "uts",
    CLONE_NEWPID: "pid",
}  # under /proc/PID/ns
MESSAGE_BYTES = 1 << 17  # the longest that creator and holder exchange
CLIENT_TIMEOUT_S = 1.0

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def unshare(kinds: int) -> None:
    """Moves the calling thread (of PID namespaces: its children) into new namespaces. Raises OSError."""
    _call("unshare", kinds)


def setns(descriptor: int, kind: int) -> None:
    """Moves the calling thread (of PID namespaces: its children) into a namespace. Raises OSError."""
    _call("setns", descriptor, kind)


def open_namespace(kind: int, pid: int | str = "self") -> int:
    """A descriptor of a process's namespace; it keeps the namespace alive. Raises OSError."""
    return os.open(f"/proc/{pid}/ns/{FILES[kind]}", os.O_RDONLY | os.O_CLOEXEC)


def _mount(source: str, target: str, kind: str | None, flags: int = 0) -> None:
    _call("mount", source.encode(), target.encode(), kind.encode() if kind else None, flags, None)


def _own_mounts(hosts_file: str) -> None:
    """Mounts that all hosts have alike: what the machine mounts is seen, what we mount is not."""
    unshare(CLONE_NEWNS)
    _mount("none", "/", None, MS_REC | MS_SLAVE)
    _mount("proc", "/proc", "proc")  # so that a process finds itself under the number it knows
    if os.path.exists("/etc/hosts"):
        _mount("tmpfs", "/dev/shm", "tmpfs")
        with open("/dev/shm/hosts", "w") as file:
            file.write(hosts_file)
        _mount("/dev/shm/hosts", "/etc/hosts", None, MS_BIND)


def _host_mounts() -> None:
    """A /sys that shows this network namespace, with the machine's control groups, and a /dev/shm."""
    groups = (
        os.open("/sys/fs/cgroup", os.O_PATH | os.O_CLOEXEC) if os.path.ismount("/sys/fs/cgroup") else None
    )
    _mount("sysfs", "/sys", "sysfs")
    if groups is not None:
        _mount(f"/proc/self/fd/{groups}", "/sys/fs/cgroup", None, MS_BIND | MS_REC)
        os.close(groups)
    _mount("tmpfs", "/dev/shm", "tmpfs")


def _make(name: str, host: bool, sysctls: dict[str, str]) -> dict[str, int]:
    """One network namespace, of a host with its mounts and name; returns descriptors by kind."""
    kinds = (CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWUTS) if host else (CLONE_NEWNET,)
    unshare(sum(kinds))
    for key, value in sysctls.items():
        try:
            with open("/proc/sys/" + key.replace(".", "/"), "w") as file:
                file.write(value)
        except OSError as why:
            raise OSError(why.errno, f"{key} = {value}: {why.strerror}") from None
    if host:
        _host_mounts()
        socket.sethostname(name)
    return {FILES[kind]: open_namespace(kind) for kind in kinds}


def _make_all(order: dict[str, Any]) -> dict[str, dict[str, int]]:
    _own_mounts(order["hosts_file"])
    mounts, names = open_namespace(CLONE_NEWNS), open_namespace(CLONE_NEWUTS)
    made = {}
    for namespace in order["namespaces"]:
        made[namespace["name"]] = _make(**namespace)
        setns(mounts, CLONE_NEWNS)
        setns(names, CLONE_NEWUTS)
    setns(made[order["stay_in"]]["net"], CLONE_NEWNET)
    return made


def _answer(listener: socket.socket, text: bytes) -> None:
    """Tells one client what this lab is. It asks first: by then it holds a descriptor of this process."""
    client, _ = listener.accept()
    with client:
        client.settimeout(CLIENT_TIMEOUT_S)
        try:
            client.recv(1)
            client.sendall(text)
        except OSError:
            pass  # it went away


def _watch(control: socket.socket, creator: int, listener: socket.socket | None) -> None:
    """Returns when the lab shall end."""
    stay, text = False, b""
    poll = select.poll()
    poll.register(creator, select.POLLIN)
    poll.register(control, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if listener is not None and descriptor == listener.fileno():
                _answer(listener, text)
                continue
            message = control.recv(MESSAGE_BYTES) if descriptor == control.fileno() else b""
            if not message and not stay:
                return  # the creator died, or let go of its end
            poll.unregister(descriptor)
            if message and listener is not None:
                stay, text = True, message
                listener.listen(8)
                poll.register(listener, select.POLLIN)


def hold(control_fd: int, creator: int, listener_fd: int) -> None:
    """Makes the namespaces that the creator orders, reports their descriptors, and holds them.

    Args:
        control_fd: A SOCK_SEQPACKET socket. First comes the order; a second message means: stay without the
            creator, and tell that text to who asks at the listener. Its end means: end.
        creator: A pidfd; we end with that process.
        listener_fd: A bound Unix socket, or -1.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # process 1 inherits orphans: the kernel buries them
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    _libc.prctl(PR_SET_NAME, b"pycomm-lab")
    control = socket.socket(fileno=control_fd)
    listener = socket.socket(fileno=listener_fd) if listener_fd >= 0 else None
    try:
        report: dict[str, Any] = _make_all(json.loads(control.recv(MESSAGE_BYTES)))
    except OSError as why:
        report = {"error": str(why.strerror)}
    control.send(json.dumps(report).encode())
    _watch(control, creator, listener)


if __name__ == "__main__":
    hold(*map(int, sys.argv[1:]))
