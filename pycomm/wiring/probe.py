"""Which candidates work: on each, a rank of every machine connects to one of the next, once."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence

from pycomm.admission.deadline import Deadline
from pycomm.admission.door import knock
from pycomm.admission.handshake import Dialer, Identity
from pycomm.bootstrap import Bootstrap
from pycomm.errors import Error
from pycomm.log import logger
from pycomm.wiring.choice import Candidate
from pycomm.wiring.links import Reach, dial, link

PURPOSE = "probe"
PROBE_S = 3.0  # to connect: as long as Linux asks for a neighbour's hardware address, 3 × 1 s
ANSWER_S = 10.0  # to prove who one is, on a busy machine


class Prober:
    """Tries candidates, together with all other ranks. `hosts` and `leaders` are the machines' names, and
    the ranks that try for them.
    """

    def __init__(
        self, bootstrap: Bootstrap, identity: Identity, reaches: Sequence[Reach], hosts: Mapping[str, str]
    ) -> None:
        self._bootstrap = bootstrap
        self._identity = identity
        self._reaches = reaches
        self._hosts = hosts
        self._leaders: dict[str, int] = {}
        for rank, reach in enumerate(reaches):
            self._leaders.setdefault(reach.machine, rank)

    def working(self, groups: Sequence[Sequence[Candidate]], deadline: Deadline) -> list[Candidate]:
        """Of the first group that has any, those over which all machines reach the next one.

        Raises:
            Error: none does; the text lists what was tried, and is the same on all ranks.
        """
        failed: dict[str, str] = {}
        for group in groups:
            own = self._try(group, deadline) if self._leads() else {}
            for said in self._bootstrap.all_gather(json.dumps(own).encode()):
                for name, why in json.loads(said).items():
                    if name not in failed and self._identity.rank == 0:
                        logger.warning("%s is not used: %s", name, why)
                    failed.setdefault(name, why)
            found = [row for row in group if row.name not in failed]
            if found:
                return found
        tried = "; ".join(f"{name}: {why}" for name, why in failed.items())
        raise Error(
            f"init: no network interface connects all {len(self._hosts)} machines "
            f"({tried or 'none in common'}). Set PYCOMM_NIC to those that do; does a firewall stand between?"
        )

    def _leads(self) -> bool:
        rank = self._identity.rank
        return self._leaders[self._reaches[rank].machine] == rank

    def _try(self, group: Sequence[Candidate], deadline: Deadline) -> dict[str, str]:
        """Why candidates fail, by name; all are tried at once."""
        failed: dict[str, str] = {}
        threads = [
            threading.Thread(target=self._reach, args=(row, deadline, failed), daemon=True) for row in group
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return failed

    def _reach(self, row: Candidate, deadline: Deadline, failed: dict[str, str]) -> None:
        here = self._reaches[self._identity.rank].machine
        machines = list(self._leaders)
        there = machines[(machines.index(here) + 1) % len(machines)]
        peer = self._leaders[there]
        way = link(row.nics[here], self._reaches[peer].nics.get(row.nics[there].name, ()))
        if way is None:
            at = ", ".join(row.nics[there].addresses)
            failed[row.name] = f"{self._hosts[here]} and {self._hosts[there]} ({at}) share no IP version"
            return
        try:
            with dial(way, deadline.within(PROBE_S)) as sock:
                knock(sock, Dialer(self._identity, PURPOSE, peer), deadline.within(ANSWER_S))
        except OSError as why:
            failed[row.name] = (
                f"{self._hosts[here]} ({way.source}) cannot reach {self._hosts[there]} ({way.to[0]}): "
                f"{why.strerror or why}"
            )
