"""One library at one size on a rail lab: times of its calls, and what the lab's counters say they moved."""

from dataclasses import dataclass
from typing import Any

from bench.compare import slowest
from bench.fabric_record import FabricRecord, Found, Setup
from bench.workers import Workers
from pycomm.bench.workload import Workload
from pycomm.lab import Lab

SECONDS_A_ROUND = 1.5
"""How long one library is measured at a time, roughly, unless one call takes longer."""
MOST_CALLS_A_ROUND = 50


class LeftOut(RuntimeError):
    """Why a library gets no row."""


@dataclass(frozen=True)
class Team:
    """The ranks of one library, under the name that its records get."""

    title: str
    workers: Workers


class Cell:
    """What is found out about one library at one size."""

    def __init__(self, lab: Lab, setup: Setup, team: Team, work: Workload) -> None:
        self.team = team
        self.work = work
        self._lab = lab
        self._setup = setup
        self._calls_a_round = 1
        in_place = work.collective == "broadcast"  # by its nature
        self._found = Found(in_place, (0,) * setup.rails)

    def first_call(self) -> None:
        """Makes the connections, checks the result, and finds out how long a call takes, about.

        Raises:
            LeftOut: The library has no such collective.
        """
        answers = self._ask(check=True, iterations=1)
        if "unsupported" in answers[0]:
            raise LeftOut(answers[0]["unsupported"])
        self._found.wrong = sum(answer["wrong"] for answer in answers)
        self._found.planned_bytes = answers[0]["planned_bytes"]
        about_s = max(self._setup.bound_s(self.work), min(slowest(answers)))
        self._calls_a_round = max(1, min(MOST_CALLS_A_ROUND, round(SECONDS_A_ROUND / about_s)))

    def time(self) -> None:
        """One round."""
        before = self._lab.counters()
        times = slowest(self._ask(check=False, iterations=self._calls_a_round))
        self._found.add(times, self._lab.counters() - before)

    def check_bytes(self) -> None:
        """Raises LeftOut where fewer bytes left the hosts than any algorithm must send: not over the NICs."""
        least = self._setup.least_bytes(self.work)
        sent = sum(self._found.rail_bytes) / self._found.calls
        if sent < least:
            raise LeftOut(
                f"its hosts sent {sent:,.0f} bytes a call where no algorithm can do with fewer than "
                f"{least:,.0f}: it moves data through memory that lab hosts share"
            )

    def record(self) -> FabricRecord:
        """All of it."""
        return self._setup.record(self.work, self.team.title, self._found)

    def _ask(self, *, check: bool, iterations: int) -> list[dict[str, Any]]:
        return self.team.workers.ask(
            {
                "collective": self.work.collective,
                "count": self.work.count,
                "dtype": self.work.dtype.name,
                "op": self.work.op,
                "in_place": self._found.in_place,
                "check": check,
                "warm_up": 0,
                "iterations": iterations,
            }
        )
