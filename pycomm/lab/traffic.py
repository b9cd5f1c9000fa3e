"""Senders and receivers that fill links: a program that runs in a host of a lab.

It imports nothing of pycomm, so that it starts in milliseconds. Its argument is JSON: {"listen":
[address, …], "send": [[from address, to address], …]}. It says "ready" when it listens, begins to send
with the first line on its standard input, and ends with the end of that.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading

PORT = 5201  # iperf3's
PIECE_BYTES = 1 << 18


def receive(connection: socket.socket) -> None:
    """Takes all that comes and throws it away, uncopied (tcp(7): MSG_TRUNC)."""
    while connection.recv(PIECE_BYTES, socket.MSG_TRUNC):
        pass


def accept(server: socket.socket) -> None:
    """Receives on every connection at once."""
    while True:
        connection, _ = server.accept()
        threading.Thread(target=receive, args=(connection,), daemon=True).start()


def send(source: str, target: str) -> None:
    """Sends as fast as the link takes it, until the process ends."""
    # Where the link is down, or the receiver was ended first, the counters show it.
    link = (target, PORT), None, (source, 0)
    with contextlib.suppress(OSError), socket.create_connection(*link) as connection:
        piece = bytes(PIECE_BYTES)
        while True:
            connection.sendall(piece)


def main() -> None:
    """See above."""
    order = json.loads(sys.argv[1])
    for address in order["listen"]:
        server = socket.create_server((address, PORT), backlog=128)
        threading.Thread(target=accept, args=(server,), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.readline()
    for source, target in order["send"]:
        threading.Thread(target=send, args=(source, target), daemon=True).start()
    sys.stdin.read()
    os._exit(0)  # threads are in the middle of sending


if __name__ == "__main__":
    main()
