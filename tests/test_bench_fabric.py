"""The comparison over a rail lab: what goes over the wires, in short. (Nothing here looks at a time.)"""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.fabric import parse, parse_rate
from bench.fabric_record import Setup
from bench.placement import in_order, shuffled, topology
from pycomm.bench.measure import Case, workloads
from pycomm.bench.workload import parse_dtype

ROOT = Path(__file__).parents[1]
MEBI = 1 << 20
OVERHEAD = 0.06  # headers of Ethernet, IP, TCP and of pycomm's frames, acknowledgements

pytestmark = pytest.mark.timeout(100)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a lab of network namespaces needs root")


@pytest.fixture
def mark() -> Iterator[str]:
    """A word that all processes of the test have in their environment: none may be left."""
    word = f"test-{secrets.token_hex(8)}"
    yield word
    deadline = time.monotonic() + 5
    while marked(word) and time.monotonic() < deadline:  # the kernel may be a moment late
        time.sleep(0.05)
    assert marked(word) == []


def marked(word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes():
                found.append((path.parent / "cmdline").read_text().replace("\0", " "))
    return found


def start(words: Sequence[str], mark: str, json_lines: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "bench", "fabric", *words, "--json", str(json_lines)],
        cwd=ROOT,
        env=os.environ | {"MARK": mark, "TMPDIR": str(json_lines.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def fabric(words: Sequence[str], mark: str, json_lines: Path) -> list[dict[str, Any]]:
    with start(words, mark, json_lines) as process:
        output, _ = process.communicate(timeout=90)
    assert process.returncode == 0, output
    return [json.loads(line) for line in json_lines.read_text().splitlines()]


@needs_root
def test_bytes_stay_on_their_rails_and_are_those_of_the_plan(mark: str, tmp_path: Path) -> None:
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    words = ["all_reduce", "--hosts", "2", "--rails", "2", "--sizes", "1M", "--rounds", "1"]
    ours, gloo = fabric([*words, "--against", "gloo"], mark, tmp_path / "json")
    for record, library in ((ours, "pycomm"), (gloo, "gloo")):
        assert (record["library"], record["wrong"], record["bytes"]) == (library, 0, MEBI)
        assert (record["hosts"], record["rails"], record["rate_mbit"]) == (2, 2, 200.0)
        assert record["bound_us"] == pytest.approx(MEBI / (2 * 25e6) * 1e6)
        assert record["iterations"] >= 1
        assert sum(record["rail_bytes"]) >= 2 * MEBI * record["iterations"]
    assert ours["planned_bytes"] == 2 * MEBI * ours["iterations"]
    assert ours["planned_bytes"] <= sum(ours["rail_bytes"]) <= (1 + OVERHEAD) * ours["planned_bytes"]
    assert max(ours["rail_bytes"]) <= 1.02 * min(ours["rail_bytes"])
    assert ours["spine_bytes"] < 10_000
    assert gloo["planned_bytes"] is None


@needs_root
def test_a_ring_over_shuffled_ranks_pays_the_spine(mark: str, tmp_path: Path) -> None:
    words = ["all_reduce", "--hosts", "2", "--rails", "2", "--sizes", "1M", "--rounds", "1", "--against", ""]
    words += ["--policy", "cheapest", "--algorithm", "ring", "--shuffle", "1"]
    first, ring = fabric(words, mark, tmp_path / "json")
    assert (first["library"], ring["library"]) == ("pycomm", "pycomm cheapest, ring, shuffled")
    assert (first["wrong"], ring["wrong"]) == (0, 0)
    assert first["spine_bytes"] < 10_000
    assert ring["spine_bytes"] > MEBI / 2 * ring["iterations"]


@needs_root
def test_hosts_of_unlike_width(mark: str, tmp_path: Path) -> None:
    words = ["all_gather", "--hosts", "3", "--ranks-per-host", "2,3,1", "--sizes", "768K", "--rounds", "1"]
    (ours,) = fabric(words, mark, tmp_path / "json")
    assert (ours["ranks"], ours["nodes"], ours["rails"], ours["wrong"]) == (6, 3, 3, 0)
    assert ours["bound_us"] == pytest.approx(768 * 1024 * 5 / 6 / 25e6 * 1e6)  # into the host of one rank


@needs_root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_an_interrupted_run(number: signal.Signals, mark: str, tmp_path: Path) -> None:
    words = [
        "all_reduce",
        "--hosts",
        "2",
        "--rails",
        "1",
        "--sizes",
        "1M",
        "--rounds",
        "1000",
        "--against",
        "",
    ]
    with start(words, mark, tmp_path / "json") as process:
        while sum("bench.worker" in command for command in marked(mark)) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]


def test_bounds_are_those_of_the_network() -> None:
    hosts, rails, ranks = 4, 2, 8
    setup = Setup(topology(in_order([rails] * hosts)), rails, 200.0, 200.0)
    expected = {
        "all_reduce": (2 * (hosts - 1) / hosts / rails, 2 * (hosts - 1)),
        "all_to_all": ((hosts - 1) / hosts, (hosts - 1) * rails),
        "reduce_scatter": ((hosts - 1) / hosts / rails, hosts - 1),
        "all_gather": ((hosts - 1) / hosts / rails, hosts - 1),
        "broadcast": (1 / rails, hosts - 1),
        "reduce": (1 / rails, hosts - 1),
    }
    for collective, (a_nic, together) in expected.items():
        (work,) = workloads(Case(collective, parse_dtype("float32")), [16 * MEBI], 0, ranks)
        assert setup.bound_s(work) == pytest.approx(a_nic * 16 * MEBI / 25e6), collective
        assert setup.least_bytes(work) == pytest.approx(together * 16 * MEBI), collective


def test_the_narrowest_host_bounds_an_all_reduce() -> None:
    setup = Setup(topology(in_order([2, 3, 1])), 3, 200.0, 200.0)
    (work,) = workloads(Case("all_reduce", parse_dtype("float32")), [16 * MEBI], 0, 6)
    assert setup.bound_s(work) == pytest.approx(2 * 2 / 3 * 16 * MEBI / 25e6)
    assert setup.least_bytes(work) == 0


def test_shuffled_ranks_are_the_same_ranks() -> None:
    sizes = [2, 3, 1]
    assert in_order(sizes) == (0, 0, 1, 1, 1, 2)
    assert sorted(shuffled(sizes, 3)) == list(in_order(sizes))
    assert shuffled(sizes, 3) == shuffled(sizes, 3)
    assert topology(shuffled(sizes, 3)).rail_numbers.count(0) == 3


def test_rates() -> None:
    assert (parse_rate("200mbit"), parse_rate("1.5Gbit")) == (200.0, 1500.0)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["all_reduce", "--rate", "200"], "not a rate"),
        (["all_reduce", "--rate", "0mbit"], "not a rate"),
        (["barrier"], "barrier"),
        (["all_reduce", "--against", "nccl"], "nccl"),
        (["all_reduce", "--hosts", "1"], "two hosts"),
        (["all_reduce", "--hosts", "2", "--ranks-per-host", "2,3,1"], "--ranks-per-host"),
        (["all_reduce", "--rails", "1", "--hosts", "2", "--ranks-per-host", "2,1"], "one of the two"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert complaint in capsys.readouterr().err
