"""Instructions of a small call: two ranks, eight bytes, from the entry out of Python to the return.

Time on a shared machine says little about a change of a few nanoseconds; the number of instructions, counted
by valgrind's callgrind, is the same in each run. It is compared with bench/baselines/instructions.json where
that was made with the same compiler, for the same processor family; --update writes it anew.
"""

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.peers import ROOT
from pycomm import _C

BASELINE = ROOT / "bench" / "baselines" / "instructions.json"
TOLERANCE = 0.05
CALLS = 200  # a multiple of the slots of a lane, whose credit comes back now and then
TAKES = "(_object*, _object* const*, unsigned long, _object*)"
ENTRIES = {  # where counting begins and ends
    "hot": f"pycomm::(anonymous namespace)::call_hot_method{TAKES}",
    "persistent": f"pycomm::(anonymous namespace)::call_persistent{TAKES}",
}
WHAT = {"hot": "comm.all_reduce(x, out=x)", "persistent": "op = comm.all_reduce_init(x, out=x); op()"}


class NotCounted(Exception):
    """Why there is no figure."""


def compiler() -> str:
    """Of the core, as it says in its comment section; with the processor family."""
    assert _C.__file__ is not None
    found = re.search(rb"GCC: \([^)]*\) ([0-9.]+)|clang version ([0-9.]+)", Path(_C.__file__).read_bytes())
    name = found[0].decode(errors="replace") if found else "unknown compiler"
    return f"{name}, {platform.machine()}"


def total(output: str) -> int:
    """Instructions in one of callgrind's files."""
    found = re.search(r"^(?:totals|summary): (\d+)", output, re.MULTILINE)
    return int(found[1]) if found else 0


def count(path: str, calls: int) -> float:
    """Instructions of one call."""
    if shutil.which("valgrind") is None:
        raise NotCounted("valgrind is not installed (on Debian and Ubuntu: apt install valgrind)")
    with tempfile.TemporaryDirectory(prefix="pycomm-bench-") as folder:
        options = ["--separate-threads=yes", f"--toggle-collect={ENTRIES[path]}"]
        command = ["valgrind", "--tool=callgrind", *options, f"--callgrind-out-file={folder}/out"]
        loop = [sys.executable, "-m", "bench.instruction_loop", path, str(calls)]
        done = subprocess.run([*command, *loop], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NotCounted(f"valgrind ended with {done.returncode}: {done.stderr[-1000:]}")
        instructions = sum(total(file.read_text()) for file in Path(folder).glob("out*"))
    if instructions == 0:
        raise NotCounted("valgrind found no entry to count in: was the core stripped of its symbols?")
    return instructions / calls


def compared(found: dict[str, float], compiled: str, baseline: dict[str, object]) -> tuple[list[str], bool]:
    """A line for each figure, and whether all are where the baseline has them."""
    known = baseline.get("instructions") if baseline.get("compiler") == compiled else None
    lines, fine = [], True
    for path, instructions in found.items():
        line = f"{path:<12} {instructions:8.1f} instructions a call   {WHAT[path]}"
        if isinstance(known, dict) and path in known:
            change = instructions / float(known[path]) - 1
            fine &= abs(change) <= TOLERANCE
            line += f"   {change:+.1%} against the baseline's {known[path]}"
        lines.append(line)
    if known is None:
        lines.append(f"# no baseline for {compiled}: nothing to compare with")
    elif not fine:
        lines.append(f"# more than {TOLERANCE:.0%} off the baseline: mend it, or run with --update")
    return lines, fine


def main(arguments: Sequence[str]) -> int:
    """Returns 1 where a figure is off its baseline; 0 with the reason where nothing can be counted."""
    parser = argparse.ArgumentParser(prog="python -m bench instructions", description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--update", action="store_true", help="write the baseline anew")
    options = parser.parse_args(arguments)
    try:
        found = {path: count(path, options.calls) for path in ENTRIES}
    except NotCounted as why:
        print(f"# skipped: {why}")
        return 0
    compiled = compiler()
    if options.update:
        figures = {path: round(instructions, 1) for path, instructions in found.items()}
        BASELINE.write_text(json.dumps({"compiler": compiled, "instructions": figures}, indent=2) + "\n")
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    lines, fine = compared(found, compiled, baseline)
    print("\n".join(lines))
    return int(not fine)
