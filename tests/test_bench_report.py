"""What a person sees: progress on a terminal only, rows as they come, also from another process."""

import io
import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from pycomm.bench.measure import Row
from pycomm.bench.progress import Progress
from pycomm.bench.record import Setting, make_record
from pycomm.bench.report import RemoteReport, Report, shown
from pycomm.bench.workload import Workload


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_row(wrong: int) -> Row:
    work = Workload("all_reduce", 256, np.dtype("float32"), 0, 4)
    return Row(None, make_record(work, Setting("pycomm", "ring", 1, True), [1e-6], wrong))


def test_progress_is_for_terminals_and_leaves_nothing() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        with Progress(2, stream) as progress:
            progress.step("8")
            progress.step("64K")
    assert file.getvalue() == ""
    assert "0/2 8" in terminal.getvalue()
    assert "1/2 64K" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("wrong", [0, 5])
def test_a_report_ends_with_a_verdict_and_files(
    wrong: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report("all_reduce", 1, tmp_path / "file.json", None)
    report.begin(1024)
    report.add(a_row(wrong))
    assert report.finish() == (wrong == 0)
    assert capsys.readouterr().out.splitlines()[-2].endswith("5 FAILED" if wrong else "0 OK")
    assert json.loads((tmp_path / "file.json").read_text())["wrong"] == wrong


def remote(path: Path) -> None:
    report = RemoteReport(path)
    report.begin(1024)
    report.add(a_row(7))
    report.finish()


@pytest.mark.timeout(20)
def test_a_report_shows_what_another_process_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("all_reduce", 1, None, None)
    with shown(report, tmp_path / "pipe"):
        process = multiprocessing.get_context("fork").Process(target=remote, args=(tmp_path / "pipe",))
        process.start()
        process.join()
    assert not report.finish()
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert rows == [["1024", "256", "float32", "sum", "-1", "-", "-", "-", "-", "1.00", "1.02", "1.54", "7"]]


@pytest.mark.timeout(20)
def test_a_report_ends_though_nobody_ever_spoke(tmp_path: Path) -> None:
    with shown(Report("barrier", 1, None, None), tmp_path / "pipe"):
        pass
