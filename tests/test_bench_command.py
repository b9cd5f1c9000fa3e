"""`pycomm bench` and the measurements of bench/, started as a person starts them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pycomm.bench.workload import COLLECTIVES

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.timeout(100)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
    )


def bench(*words: str) -> str:
    done = command("pycomm", "bench", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_is_right_over_two_nodes(collective: str, tmp_path: Path) -> None:
    sizes = ["-b", "8", "-e", "128K", "-f", "128"]
    text = bench(
        *(collective, *sizes, "-n", "3", "-w", "1", "--nodes", "2,1", "-r", "1"),
        *("--json", str(tmp_path / "json")),
    )
    found = records(tmp_path / "json")
    assert len(found) == {"barrier": 1, "all_to_all": 3}.get(collective, 6)
    for record in found:
        assert (record["library"], record["ranks"], record["nodes"]) == ("pycomm", 3, 2)
        assert record["wrong"] == (None if collective == "barrier" else 0)
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(rows) == (1 if collective == "barrier" else 3)
    assert "[0]" not in text


def test_options_reach_the_ranks(tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes")
    pytest.importorskip("matplotlib")
    bench(
        *("all_reduce", "-b", "1K", "-e", "1K", "-n", "4", "-w", "0", "-c", "0", "-z", "0", "-d", "bfloat16"),
        *("-o", "max", "--algorithm", "ring", "--transport", "tcp"),
        *("--json", str(tmp_path / "json"), "--plot", str(tmp_path / "plot.svg")),
    )
    for record in records(tmp_path / "json"):
        assert (record["dtype"], record["redop"], record["algorithm"]) == ("bfloat16", "max", "ring")
        assert (record["wrong"], record["count"]) == (None, 512)
    assert "<svg" in (tmp_path / "plot.svg").read_text()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["all_reduce", "-b", "1M", "-e", "8"], "empty"),
        (["all_reduce", "-f", "1"], "factor"),
        (["reduce", "-r", "2"], "no rank 2"),
        (["all_reduce", "-n", "0"], "-n"),
        (["all_reduce", "-d", "quad"], "datatype"),
        (["all_reduce", "--algorithm", "spiral", "-e", "8"], "spiral"),
        (["all_reduce", "-d", "float31"], "'float31'"),
        (["all_reduce", "-b", "1Q"], "'1Q' is not a size"),
    ],
)
def test_what_cannot_be_measured_is_refused(words: list[str], complaint: str) -> None:
    done = command("pycomm", "bench", *words)
    assert done.returncode != 0
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_it_joins_a_job_that_a_launcher_has_started() -> None:
    words = ("-m", "pycomm", "bench", "all_reduce", "-e", "8", "-n", "2")
    done = command("pycomm", "run", "-n", "2", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("float32") == 1
    assert "0 OK" in done.stdout


def test_comparison_with_itself_and_a_peer(tmp_path: Path) -> None:
    done = command(
        *("bench", "compare", "all_reduce", "--sizes", "8,4K", "--against", "mpich", "--rounds", "2"),
        *("--json", str(tmp_path / "json")),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ours = [record for record in records(tmp_path / "json") if record["library"] == "pycomm"]
    assert [(record["bytes"], record["in_place"]) for record in ours] == [
        (8, False),
        (8, True),
        (4096, False),
        (4096, True),
    ]
    assert all(record["wrong"] == 0 for record in ours)


def test_training_on_digits() -> None:
    done = command("pycomm", "run", "-n", "4", "--nodes", "2", "bench/train_digits.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bit-identical" in done.stdout


def test_small_all_reduces_leak_nothing() -> None:
    done = command("bench", "leak", "--calls", "3000", "--nodes", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing leaked" in done.stdout


def test_init_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "json"
    words = ("--ranks", "4,2", "--threads", "3", "--rounds", "2", "--json", str(path))
    done = command("bench", "init", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 processes: init" in done.stdout
    found: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["kind"], each["ranks"]) for each in found] == [
        ("processes", 4),
        ("processes", 2),
        ("threads", 3),
    ]
    # Each of four ranks has a doorbell and a process of the other three, and few files of its own.
    assert found[0]["open_files"] - found[0]["open_files_before"] - 2 * 3 in range(20)
    assert all(len(each["init_s"]) == 2 and 1 <= each["endpoints"] < each["ranks"] for each in found)


def test_an_unknown_measurement_lists_those_there_are() -> None:
    done = command("bench", "nothing")
    assert done.returncode == 2
    assert "compare" in done.stderr
