"""The habits that a machine can hold: sizes, names, reasons, and what `import pycomm` may pull in."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("pycomm", "topo", "csrc", "tests", "bench")
FILES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")  # does not follow pycomm/topo, which is topo/ once more
    if path.suffix in {".py", ".pyi", ".cc", ".h", ".cu", ".cuh"} and "__pycache__" not in path.parts
)
PYTHON = [path for path in FILES if path.suffix == ".py"]

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_PARAMETERS = 6
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "misc"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield node


def code_lines(function: Function) -> int:
    """From `def` to the end; the docstring is free."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def parameters(function: Function, public: bool) -> int:
    """Those a reader must keep in order or in mind: options by keyword are free in the public API."""
    arguments = function.args
    named = [a.arg for a in arguments.posonlyargs + arguments.args if a.arg not in ("self", "cls")]
    return len(named) + (0 if public else len(arguments.kwonlyargs))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_file_is_short_and_named_after_what_is_in_it(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_FILE_LINES, f"{name(path)} has {lines} lines, {MAX_FILE_LINES} is the most"
    parts = {part.split(".")[0].lower() for part in path.relative_to(ROOT).parts}
    assert not parts & EMPTY_NAMES, f"{name(path)}: a name that says nothing"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_what_is_left_to_do_has_a_reason(path: Path) -> None:
    marks = "TO" + "DO|FIX" + "ME"  # in two halves, or this file would fail
    for number, line in enumerate(path.read_text().splitlines(), 1):
        bare = re.search(rf"\b({marks})\b(?!: \S.{{9}})", line)
        assert bare is None, f"{name(path)}:{number}: say what is missing and why: {line.strip()}"


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_functions_are_short_and_take_few_parameters(path: Path) -> None:
    for function in functions(path):
        where = f"{name(path)}:{function.lineno}: {function.name}"
        lines = code_lines(function)
        assert lines <= MAX_FUNCTION_LINES, f"{where} has {lines} lines, {MAX_FUNCTION_LINES} is the most"
        public = path.is_relative_to(ROOT / "pycomm") and not function.name.startswith("_")
        taken = parameters(function, public or function.name == "__init__")
        assert taken <= MAX_PARAMETERS, f"{where} takes {taken} parameters, {MAX_PARAMETERS} is the most"


def test_import_pycomm_pulls_in_no_framework() -> None:
    """Each of these costs seconds, or starts something (MPI_Init), that nobody asked for."""
    code = "import sys, pycomm; print(*{'torch', 'cupy', 'jax', 'mpi4py', 'matplotlib'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout.split() == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an archive made by setuptools knows no links")
def test_pycomm_topo_is_a_relative_link() -> None:
    assert (ROOT / "pycomm" / "topo").readlink() == Path("../topo")
