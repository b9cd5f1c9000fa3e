"""The settings: read, refused, warned about, and every one of them used."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pycomm import log, settings
from pycomm.errors import InvalidArgument

ROOT = Path(__file__).parent.parent


def test_defaults_and_where_values_come_from() -> None:
    given = settings.read({"PYCOMM_RAIL": "3", "PYCOMM_TIMEOUT_S": "2.5", "PYCOMM_NODE": ""})
    assert (given.rail, given.timeout_s, given.node, given.policy) == (3, 2.5, None, "rail_first")
    assert given.sources["RAIL"] == "environment"
    assert given.sources["NODE"] == given.sources["POLICY"] == "default"
    assert set(given.sources) == {setting.name for setting in settings.SETTINGS}


def test_the_class_and_the_table_say_the_same() -> None:
    plain = settings.Settings()
    for setting in settings.SETTINGS:
        assert getattr(plain, setting.name.lower()) == setting.default
    assert settings.read({}) == plain


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("PYCOMM_RAIL", "-1", "must not be negative"),
        ("PYCOMM_NIC", "eth,^lo", "stands once"),
        ("PYCOMM_RAIL", "x", "invalid literal"),
        ("PYCOMM_RAIL", str(2**31), "must be at most"),
        ("PYCOMM_TIMEOUT_S", "0", "positive number of seconds"),
        ("PYCOMM_TIMEOUT_S", "inf", "positive number of seconds"),
        ("PYCOMM_TRANSPORT", "udp", "must be one of auto, tcp"),
        ("PYCOMM_POLICY", "fast", "must be one of rail_first, cheapest, strict"),
        ("PYCOMM_LOG", "loud", "must be one of warn, info, trace"),
        ("PYCOMM_NODE", "a\nb", "printable"),
    ],
)
def test_a_wrong_value_names_its_variable(variable: str, text: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        settings.read({variable: text})
    assert variable in str(caught.value)


def test_an_unknown_setting_is_warned_about_with_the_nearest_name(caplog: pytest.LogCaptureFixture) -> None:
    settings.read({"PYCOMM_TIMEOUT": "3", "PYCOMM_XYZZY": "1", "OTHER": "1", "PYCOMM_RAIL": "1"})
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "unknown setting PYCOMM_TIMEOUT: did you mean PYCOMM_TIMEOUT_S?"
    assert second.startswith("unknown setting PYCOMM_XYZZY: there are PYCOMM_NODE, PYCOMM_NIC, ")


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    level = logging.getLogger("pycomm").level
    with pytest.raises(InvalidArgument, match=r"PYCOMM_LOG='info:.*' cannot be used: .*/none/log: No such"):
        log.configure(f"info:{tmp_path}/none/log")
    assert logging.getLogger("pycomm").level == level


def test_the_log_goes_where_the_setting_says(tmp_path: Path) -> None:
    where = f"info:{tmp_path}/log.%p"
    logger = logging.getLogger("pycomm")
    before, level = list(logger.handlers), logger.level
    try:
        log.configure(where)
        log.configure(where)
        logger.info("something")
        logger.log(log.TRACE, "more than asked for")
        written = (tmp_path / f"log.{os.getpid()}").read_text().splitlines()
    finally:
        for handler in set(logger.handlers) - set(before):
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)
    assert [line.split("INFO ")[1] for line in written] == ["something"]


def test_info_prints_every_setting_with_its_source() -> None:
    command = [sys.executable, "-m", "pycomm", "info"]
    environ = {**os.environ, "PYCOMM_RAIL": "7"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ, timeout=60)
    assert done.returncode == 0, done.stderr
    for setting in settings.SETTINGS:
        assert setting.variable in done.stdout
    assert "PYCOMM_RAIL         7  [environment]" in done.stdout
    for title in ("build", "machine", "optional", "interface lo", "numpy", "ml_dtypes"):
        assert title in done.stdout


def test_the_readme_has_every_setting() -> None:
    said = (ROOT / "README.md").read_text()
    assert [each.variable for each in settings.SETTINGS if f"`{each.variable}`" not in said] == []


def test_an_unknown_command_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pycomm", "fly"], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 2
    assert "invalid choice: 'fly'" in done.stderr
