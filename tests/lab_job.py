"""A job whose ranks run on the hosts of a lab and say what they found."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pycomm.lab import LabHost, why_not

ROOT = Path(__file__).parent.parent
PORT = 29600
PROGRAM = """
import json, logging, os, socket, time
import numpy as np
import pycomm

class Kept(logging.Handler):
    lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())

def listening():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as sock:
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and sock.family != socket.AF_UNIX:
                    found.add(sock.getsockname()[0])
        except OSError:
            pass
    return sorted(found)

logging.getLogger("pycomm").addHandler(Kept())
logging.getLogger("pycomm").setLevel(logging.INFO)
time.sleep(float(os.environ.get("LATE_S", 0)))
said = {}
try:
    with pycomm.init(timeout_s=float(os.environ.get("INIT_S", 30))) as comm:
        x = comm.all_reduce(np.ones(int(os.environ.get("COUNT", 1000)), np.float32), timeout_s=30)
        fabric = comm._world.fabric
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        said["sum"] = float(x.min()) if x.min() == x.max() else "unlike"
        said["topology"] = repr(comm.topology)
        said["rails"] = [f"{place.rail}: {place.rail_source}" for place in comm.topology.places]
        said["nics"] = [place.nics for place in comm.topology.places]
        said["kinds"] = [fabric.transport(rank) if fabric.connected(rank) else "" for rank in others]
        said["links"] = [len(fabric.links(rank)) if fabric.connected(rank) else 0 for rank in others]
        said["gbit"] = 8e-9 / comm._world.profile.network.beta
        reach = comm._world.connections.reaches[comm.rank]
        said["shared"] = [each.nic.name for each in reach.share]
        said["listening"] = listening()
        said["to"] = [address for name in said["shared"] for address, _ in reach.nics[name]]
        if "DYING" in os.environ:
            if str(comm.rank) == os.environ["DYING"]:
                os._exit(1)  # a first process of a pid namespace ignores its own signals
            comm.all_reduce(x, timeout_s=20)
except pycomm.Error as error:
    said["error"] = f"{type(error).__name__}: {error}"
said["log"] = Kept.lines
print(json.dumps(said))
"""


WHY_NOT = why_not()  # no lab can be had


def within(host: LabHost, script: str) -> None:
    """Runs a shell script in a host."""
    with host.popen(
        ["sh", "-ec", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as shell:
        text = shell.communicate(timeout=20)[0]
    assert shell.returncode == 0, text


class Job:
    """Ranks in hosts, by turns: `hosts` has one entry for each."""

    port = PORT

    def __init__(self, hosts: Sequence[LabHost], told: bool = True, **environ: str) -> None:
        """`told`: they get what the lab knows of its network."""
        Job.port += 1
        self.hosts = hosts
        self.told = told
        self.environ = {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(Job.port), **environ}
        self.ranks: dict[int, subprocess.Popen[str]] = {}

    def start(self, rank: int, wrap: Sequence[str] = (), **own: str) -> subprocess.Popen[str]:
        host = self.hosts[rank]
        known = host.environment()
        told = known if self.told else {"PYCOMM_SECRET_FILE": known["PYCOMM_SECRET_FILE"]}
        place = {"RANK": str(rank), "WORLD_SIZE": str(len(self.hosts))}
        environ = {**os.environ, "PYTHONPATH": str(ROOT), **told, **place, **self.environ, **own}
        command = [*wrap, sys.executable, "-c", PROGRAM]
        pipe = subprocess.PIPE
        self.ranks[rank] = host.popen(command, env=environ, stdout=pipe, stderr=pipe, text=True, cwd="/")
        return self.ranks[rank]

    def said(self) -> list[dict[str, Any]]:
        """What each rank that was started has to say."""
        found = []
        for rank in sorted(self.ranks):
            out, err = self.ranks[rank].communicate(timeout=60)
            assert self.ranks[rank].returncode == 0, err
            found.append(json.loads(out))
        return found


def run(hosts: Sequence[LabHost], told: bool = True, **environ: str) -> list[dict[str, Any]]:
    """Runs a job of as many ranks and returns what each says."""
    job = Job(hosts, told, **environ)
    for rank in range(len(hosts)):
        job.start(rank)
    return job.said()


def right(said: Sequence[Mapping[str, Any]]) -> None:
    """The sum is right everywhere, and all agree on where they are."""
    assert [each.get("sum") for each in said] == [len(said)] * len(said), said
    assert len({str(each["topology"]) for each in said}) == 1
