"""`bench instructions`: what it counts, and what it says of it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import instructions

BASELINE: dict[str, Any] = {"compiler": "GCC 1", "instructions": {"hot": 1000, "persistent": 800.5}}


@pytest.mark.parametrize(
    ("hot", "fine", "says"),
    [(1000.0, True, "+0.0%"), (1049.0, True, "+4.9%"), (1051.0, False, "+5.1%"), (940.0, False, "-6.0%")],
)
def test_a_figure_off_the_baseline_is_found(hot: float, fine: bool, says: str) -> None:
    lines, found = instructions.compared({"hot": hot, "persistent": 800.5}, "GCC 1", BASELINE)
    assert found is fine
    assert says in lines[0]
    assert "against the baseline's 1000" in lines[0]
    assert any("--update" in line for line in lines) is not fine


@pytest.mark.parametrize("baseline", [{}, BASELINE])
def test_another_compiler_is_not_compared(baseline: dict[str, Any]) -> None:
    lines, fine = instructions.compared({"hot": 5000.0}, "clang 2", baseline)
    assert fine
    assert lines[-1] == "# no baseline for clang 2: nothing to compare with"


def test_without_valgrind_it_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert instructions.main([]) == 0
    assert "skipped: valgrind is not installed" in capsys.readouterr().out


def test_the_committed_baseline_names_all_paths() -> None:
    baseline = json.loads(Path(instructions.BASELINE).read_text())
    assert set(baseline["instructions"]) == set(instructions.ENTRIES)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_a_persistent_call_takes_as_many_instructions_as_the_baseline_says() -> None:
    """Few calls, so a little more than the tolerance: credit is given back for every fourth message."""
    found = instructions.count("persistent", 16)
    baseline = json.loads(Path(instructions.BASELINE).read_text())
    if baseline["compiler"] == instructions.compiler():
        assert found == pytest.approx(baseline["instructions"]["persistent"], rel=0.08)
    assert 300 < found < 5000
