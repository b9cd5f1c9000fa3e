"""Ranks for a benchmark, started by `pycomm run`."""

from __future__ import annotations

from collections.abc import Sequence

from pycomm import cli


def run_ranks(ranks: int, nodes: str | None, module: Sequence[str], timeout_s: float | None = None) -> int:
    """Runs `python -m *module` on so many ranks; returns the job's exit status, as `pycomm run` does."""
    words = ["run", "-n", str(ranks)]
    words += [] if nodes is None else ["--nodes", nodes]
    words += [] if timeout_s is None else ["--timeout", str(timeout_s)]
    return cli.main([*words, "-m", *module])
