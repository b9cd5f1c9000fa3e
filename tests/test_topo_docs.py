"""docs/rails.md says what `pycomm plan` prints. `python tests/test_topo_docs.py` writes the plans anew."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from pycomm.cli import main

PAGE = Path(__file__).parent.parent / "docs" / "rails.md"
SHOWN = re.compile(r"```text\n\$ pycomm (?P<command>plan .*?)\n(?P<text>.*?)```\n", re.DOTALL)
EXAMPLES = [match["command"] for match in SHOWN.finditer(PAGE.read_text())]


def printed(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(shlex.split(command)) == 0
    return out.getvalue()


def test_the_page_has_the_worked_cases() -> None:
    for shape in ("--nodes 2,3,1", "--nodes 8,1", "--rails 0,1/2,3"):
        assert any(shape in command for command in EXAMPLES)


@pytest.mark.parametrize("command", EXAMPLES)
def test_a_plan_on_the_page_is_what_the_command_prints(command: str) -> None:
    shown = {match["command"]: match["text"] for match in SHOWN.finditer(PAGE.read_text())}
    assert shown[command] == printed(command), "run python tests/test_topo_docs.py"


if __name__ == "__main__":
    PAGE.write_text(
        SHOWN.sub(
            lambda match: f"```text\n$ pycomm {match['command']}\n{printed(match['command'])}```\n",
            PAGE.read_text(),
        )
    )
