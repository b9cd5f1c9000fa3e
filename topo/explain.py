"""A plan in words and figures, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pycomm.topo.plan import Plan


def explain(plan: Plan) -> str:
    """The plan for people."""
    return repr(plan)
