"""The types of `_C` that mypy sees are those that the module has."""

import subprocess
import sys

# What a stub cannot say of a pybind11 class: its metaclass, and an __init__ that only raises; nor what the
# __call__ of a class in C takes.
KNOWN = (
    '__call__ is inconsistent, stub does not have *args parameter "args"',
    "is inconsistent, metaclass differs",
    '__init__ is inconsistent, stub does not have *args parameter "args"',
)


def test_the_stub_is_true() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "pycomm._C"], capture_output=True, text=True, check=False
    )
    errors = [line for line in run.stdout.splitlines() if line.startswith("error: ")]
    assert run.stdout, run.stderr
    assert [error for error in errors if not error.endswith(KNOWN)] == []
