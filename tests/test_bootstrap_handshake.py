"""The handshake and the door: whoever does not know the secret stays outside, and holds nobody up."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycomm.admission import door, frames, secret
from pycomm.admission.deadline import Deadline
from pycomm.admission.door import Door, knock
from pycomm.admission.handshake import Accepter, Dialer, Identity, Refused, Visitor, derive
from pycomm.errors import InvalidArgument

SERVER = Identity("job", 0, 2, b"s" * 32)
CLIENT = Identity("job", 1, 2, b"s" * 32)


def test_both_sides_prove_the_secret() -> None:
    dialer, accepter = Dialer(CLIENT, "lanes", 0), Accepter(SERVER)
    assert accepter.admit(dialer.answer(accepter.reply(dialer.hello))) == Visitor(1, 2, "lanes")


@pytest.mark.parametrize(
    "other",
    [
        Identity("job", 1, 2, b"t" * 32),
        Identity("another job", 1, 2, b"s" * 32),
    ],
)
def test_another_secret_or_job_is_refused(other: Identity) -> None:
    dialer, accepter = Dialer(other, "lanes", 0), Accepter(SERVER)
    with pytest.raises(Refused):
        dialer.answer(accepter.reply(dialer.hello))
    with pytest.raises(Refused):
        accepter.admit(b"0" * 64)


def test_a_call_for_another_rank_is_refused() -> None:
    with pytest.raises(Refused, match="a caller for rank 5"):
        Accepter(SERVER).reply(Dialer(CLIENT, "lanes", 5).hello)


def test_nothing_can_be_replayed_or_reflected() -> None:
    dialer, accepter = Dialer(CLIENT, "lanes", 0), Accepter(SERVER)
    reply = accepter.reply(dialer.hello)
    proof = dialer.answer(reply)
    again = Accepter(SERVER)
    again.reply(dialer.hello)  # the same hello: another nonce of the accepter's
    with pytest.raises(Refused):
        again.admit(proof)
    with pytest.raises(Refused):
        Dialer(CLIENT, "lanes", 0).answer(reply)
    with pytest.raises(Refused):  # our own hello sent back to us
        dialer.answer(dialer.hello)


def test_a_changed_bit_anywhere_is_refused() -> None:
    dialer, accepter = Dialer(CLIENT, "lanes", 0), Accepter(SERVER)
    hello = dialer.hello.replace(b'"rank": 1', b'"rank": 0')
    assert hello != dialer.hello
    reply = accepter.reply(hello)
    with pytest.raises(Refused):
        dialer.answer(reply)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Refused):
        Accepter(SERVER).reply(data)
    with pytest.raises(Refused):
        Dialer(CLIENT, "lanes", 0).answer(data)
    with pytest.raises(Refused):
        Accepter(SERVER).admit(data)


@given(st.none() | st.integers() | st.text(max_size=9) | st.dictionaries(st.text(max_size=3), st.integers()))
def test_any_json_is_refused_and_nothing_else(value: object) -> None:
    fields = {
        "pycomm": 1,
        "job": "job",
        "to": 0,
        "rank": value,
        "size": 2,
        "purpose": "lanes",
        "nonce": value,
    }
    with pytest.raises(Refused):
        Accepter(SERVER).reply(json.dumps(fields).encode())


def test_secrets_are_derived_apart() -> None:
    assert len({derive(b"s" * 32, "a"), derive(b"s" * 32, "b"), derive(b"t" * 32, "a")}) == 3
    assert "s" * 8 not in repr(SERVER)


class House:
    """A door with those it let in."""

    def __init__(self) -> None:
        self.came: list[Visitor] = []
        self.changed = threading.Condition()
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = listener.getsockname()
        self.door = Door(SERVER, [listener], self.admit)

    def admit(self, visitor: Visitor, sock: socket.socket) -> None:
        sock.close()
        with self.changed:
            self.came.append(visitor)
            self.changed.notify_all()

    def call(self) -> socket.socket:
        return socket.create_connection(self.address, 5)

    def visit(self) -> None:
        before = len(self.came)
        with self.call() as sock:
            knock(sock, Dialer(CLIENT, "lanes", 0), Deadline(10))
            with self.changed:
                assert self.changed.wait_for(lambda: len(self.came) > before, 10)


@pytest.fixture
def house() -> Iterator[House]:
    found = House()
    yield found
    found.door.close()


def test_strangers_are_turned_away_and_ranks_still_come(house: House) -> None:
    for message in [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2{}", b"\xff" * 64, b"\0\0\0\0", b""]:
        with house.call() as sock:
            sock.settimeout(5)
            sock.sendall(message)
            with contextlib.suppress(OSError):  # reset, for what we sent was left unread
                sock.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                assert sock.recv(1) == b""
    house.visit()
    assert house.came == [Visitor(1, 2, "lanes")]


def test_many_silent_strangers_only_delay(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_S", 0.3)
    strangers = [house.call() for _ in range(2 * door.PENDING_LIMIT)]
    house.visit()
    for sock in strangers:
        sock.close()


def test_a_silent_stranger_is_dismissed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_S", 0.1)
    with house.call() as sock:
        sock.settimeout(5)
        assert sock.recv(1) == b""


def test_a_slow_caller_gets_in_byte_by_byte(house: House) -> None:
    dialer = Dialer(CLIENT, "lanes", 0)
    with house.call() as sock:
        hello = frames.LENGTH.pack(len(dialer.hello)) + dialer.hello
        for start in range(0, len(hello), 40):
            sock.sendall(hello[start : start + 40])
            time.sleep(0.002)
        proof = dialer.answer(frames.receive(sock, Deadline(5)))
        frames.send(sock, proof, Deadline(5))
        with house.changed:
            assert house.changed.wait_for(lambda: bool(house.came), 5)


def test_a_closed_door_leaves_no_thread_and_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    found = House()
    with found.call():
        found.door.close()
        found.door.close()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


def test_the_secrets_file_is_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    made = secret.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret.read(path) == made
    assert secret.create(path) != made, "what a dead job has left is replaced"
    assert list(tmp_path.iterdir()) == [path]


def test_a_secret_that_others_could_know_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    secret.create(path)
    path.chmod(0o640)
    with pytest.raises(InvalidArgument, match="has mode 0640: run chmod 600"):
        secret.read(path)
    path.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(InvalidArgument, match="cannot be read"):
        secret.read(link, follow=False)
    secret.read(link)
    path.write_text("short\n")
    with pytest.raises(InvalidArgument, match="has 5 bytes and needs 16"):
        secret.read(path)
    with pytest.raises(InvalidArgument, match="is not a regular file"):
        secret.read(tmp_path)
    with pytest.raises(FileNotFoundError):
        secret.read(tmp_path / "nothing")
    with pytest.raises(InvalidArgument, match="cannot be written"):
        secret.create(tmp_path / "no folder" / "secret")
