"""Ranks that find each other: the rendezvous over TCP with ranks as threads, its deadline and its errors."""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pycomm import errors
from pycomm.admission import secret
from pycomm.admission.deadline import Deadline
from pycomm.bootstrap.environment import from_arguments, from_environment
from pycomm.bootstrap.meeting import Meeting


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def together(size: int, function: Callable[[int], Any], ranks: list[int] | None = None) -> list[Any]:
    """What `function` returns or raises for each rank, all at once."""
    results: dict[int, Any] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = function(rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in ranks or range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [results.get(rank) for rank in range(size)]


def environment(rank: int, size: int, port: int, **more: str) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        **more,
    }


def exchange(size: int, environ: Callable[[int], Mapping[str, str]], rounds: int = 2) -> list[Any]:
    def run(rank: int) -> list[list[bytes]]:
        bootstrap = from_environment(environ(rank), None, Deadline(10))
        try:
            return [bootstrap.all_gather(b"%d of %d" % (rank, k) * k) for k in range(rounds)]
        finally:
            bootstrap.close()

    return together(size, run)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 17])
def test_every_rank_gets_every_payload(size: int) -> None:
    port = free_port()
    expected = [[b"%d of %d" % (rank, k) * k for rank in range(size)] for k in range(2)]
    assert exchange(size, lambda rank: environment(rank, size, port)) == [expected] * size
    assert not list(secret.job_file("x").parent.glob("pycomm-*.secret")), "the secret's file was left behind"


def test_without_a_launcher_a_job_of_one() -> None:
    assert from_environment({}, None, Deadline(1)).all_gather(b"x") == [b"x"]


def test_ports_are_found_though_others_are_taken() -> None:
    """MASTER_PORT and the first candidate are held by somebody who says nothing, such as a store."""
    port = free_port()
    first = Meeting(0, 2, "127.0.0.1", port, f"{port}/r/0", port_taken=True).ports()[0]
    with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", first)):
        more = {"TORCHELASTIC_RUN_ID": "r", "TORCHELASTIC_RESTART_COUNT": "0"}
        found = exchange(2, lambda rank: environment(rank, 2, port, **more), rounds=1)
    assert found == [[[b"", b""]]] * 2


def test_incarnations_of_a_job_do_not_meet() -> None:
    port = free_port()

    def run(rank: int) -> None:
        restart = {"TORCHELASTIC_RUN_ID": "r", "TORCHELASTIC_RESTART_COUNT": str(rank)}
        from_environment(environment(rank, 2, port, **restart), None, Deadline(0.5))

    assert all(isinstance(found, errors.TimedOut) for found in together(2, run))


def test_who_never_comes_is_named_to_everyone() -> None:
    port = free_port()

    def run(rank: int) -> list[bytes]:
        return from_environment(environment(rank, 8, port), None, Deadline(1.5)).all_gather(b"")

    found = together(8, run, [0, 1, 2, 4, 6, 7])
    for rank in [0, 1, 2, 4, 6, 7]:
        assert isinstance(found[rank], errors.TimedOut)
        assert "ranks 3 and 5 of 8 had not come after 1.5 s" in str(found[rank])


def test_a_missing_rank_0_is_named() -> None:
    started = time.monotonic()
    with pytest.raises(
        errors.TimedOut, match=r"rank 0 of 2 had not come to 127.0.0.1 after 0.4 s; is it running"
    ):
        from_environment(environment(1, 2, free_port()), None, Deadline(0.4))
    assert time.monotonic() - started < 3


def test_a_rank_that_leaves_is_named_to_everyone() -> None:
    port = free_port()

    def run(rank: int) -> list[bytes]:
        bootstrap = from_environment(environment(rank, 4, port), None, Deadline(10))
        bootstrap.all_gather(b"")
        if rank == 2:
            bootstrap.close()
            return []
        return bootstrap.all_gather(b"")

    found = together(4, run)
    for rank in [0, 1, 3]:
        assert isinstance(found[rank], errors.PeerLost)
        assert "rank 2 of 4 left before all had met" in str(found[rank])


def test_a_silent_rank_is_named_to_everyone() -> None:
    port = free_port()
    over = threading.Event()

    def run(rank: int) -> list[bytes]:
        bootstrap = from_environment(environment(rank, 3, port), None, Deadline(1))
        if rank == 1:
            over.wait(10)
            return []
        try:
            return bootstrap.all_gather(b"")
        finally:
            if rank == 0:
                over.set()

    found = together(3, run)
    assert "rank 1 of 3 came, then said nothing" in str(found[0])
    assert str(found[2]) == str(found[0])


def test_two_ranks_of_one_number_and_two_sizes() -> None:
    port = free_port()

    def run(index: int) -> list[bytes]:
        rank, size = [(0, 3), (1, 3), (1, 3), (2, 4)][index]
        return from_environment(environment(rank, size, port), None, Deadline(1)).all_gather(b"")

    found = together(4, run)
    texts = " | ".join(str(error) for error in found)
    assert "there are two ranks 1: give each its own" in texts
    assert "rank 2 was started as one of 4, rank 0 as one of 3" in texts


def test_a_wrong_secret_does_not_get_in(tmp_path: Path) -> None:
    port = free_port()
    for rank in range(2):
        path = tmp_path / str(rank)
        path.touch(0o600)
        path.write_text(f"{rank}" * 32)

    def run(rank: int) -> None:
        from_environment(environment(rank, 2, port), str(tmp_path / str(rank)), Deadline(0.6))

    found = together(2, run)
    assert "rank 1 of 2 had not come" in str(found[0])
    assert "does not know this job's secret" in str(found[1])


def test_explicit_addresses_in_both_families() -> None:
    for host in ["127.0.0.1", "[::1]", "localhost"]:
        address = f"{host}:{free_port()}"

        def run(rank: int, address: str = address) -> list[bytes]:
            return from_arguments(rank, 2, address, None, Deadline(5)).all_gather(b"%d" % rank)

        assert together(2, run) == [[b"0", b"1"]] * 2


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"RANK": "0"}, "WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set"),
        ({"WORLD_SIZE": "2"}, "RANK, MASTER_ADDR, MASTER_PORT not set"),
        (environment(0, 2, 0), "0 is not a port"),
        (environment(2, 2, 1), "rank 2 of 2 does not exist: ranks are 0 … 1"),
        (environment(0, 2, 1) | {"RANK": "x"}, "RANK='x' is not a whole number"),
        ({"WORLD_SIZE": "1", "RANK": "x"}, "RANK='x' is not a whole number"),
        ({"WORLD_SIZE": "1", "RANK": "1"}, "rank 1 of 1 does not exist"),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, r"pycomm.init\(MPI.COMM_WORLD\)"),
        ({"PMI_SIZE": "2"}, "started by an MPI launcher"),
        (
            environment(1, 4, 1, LOCAL_WORLD_SIZE="2") | {"MASTER_ADDR": "192.0.2.77"},
            "several hosts .* set PYCOMM_SECRET_FILE",
        ),
        (
            environment(0, 4, 1, LOCAL_WORLD_SIZE="2") | {"MASTER_ADDR": "192.0.2.77"},
            "several hosts .* set PYCOMM_SECRET_FILE",
        ),
        (environment(1, 4, 1) | {"MASTER_ADDR": "192.0.2.77"}, "several hosts .* set PYCOMM_SECRET_FILE"),
        (environment(1, 4, 1) | {"MASTER_ADDR": "no.such.host.invalid"}, "is unknown here"),
        (
            environment(1, 4, 1) | {"MASTER_ADDR": "1042"},
            r"'1042' of rank 0 is a number, .* read as 0.0.4.18",
        ),
    ],
)
def test_a_wrong_environment_is_refused(environ: Mapping[str, str], says: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=says):
        from_environment(environ, None, Deadline(1))


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x"])
def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="is not of the form host:port"):
        from_arguments(0, 2, address, None, Deadline(1))
