"""MPI libraries on several hosts of a lab: their launchers enter a host with a script in the place of ssh."""

import shlex
from collections import Counter
from collections.abc import Iterable

from bench.peers import ROOT, Job
from bench.placement import Placement

# The launchers call it as they would call ssh: options, a host, words that make a command of the shell.
_AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
case $host in
CASES
esac
"""


def environment(library: str, placement: Placement) -> dict[str, str]:
    """What makes a library use the network between hosts, by all NICs that it can use."""
    nics = ",".join(f"nic{rail}" for rail in range(len(set(placement.rails))))
    match library:
        case "openmpi":
            found = {"pml": "ob1", "btl": "self,sm,tcp", "btl_tcp_if_include": nics}
            return {f"OMPI_MCA_{name}": value for name, value in found.items()}
        case "mpich":  # UCX would take the memory that lab hosts share for a network
            return {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": nics}
        case _:  # Intel's wheel comes without libfabric; MPICH's has one
            libraries = ROOT / ".venv" / "mpi" / "mpich" / "lib" / "mpich"
            return {"I_MPI_FABRICS": "shm:ofi", "FI_PROVIDER": "tcp", "LD_LIBRARY_PATH": str(libraries)}


def options(job: Job, placement: Placement, exported: Iterable[str]) -> list[str]:
    """Of the launcher: the hosts, how many ranks on each, and how to get there."""
    agent = job.directory / "agent"
    cases = (f'{host.name}) exec {shlex.join(host.entry())} sh -c "$*" ;;' for host in placement.lab.hosts)
    agent.write_text(_AGENT.replace("CASES", "\n".join(cases)))
    agent.chmod(0o700)
    slots = {placement.lab.hosts[host].name: ranks for host, ranks in Counter(placement.hosts).items()}
    if job.library == "openmpi":
        words = ["--prtemca", "plm_ssh_agent", str(agent), "--prtemca", "prte_if_include", "eth0"]
        words += ["--host", ",".join(f"{name}:{ranks}" for name, ranks in slots.items())]
        for variable in (*exported, "MPI4PY_LIBMPI", "PATH"):
            words += ["-x", variable]
        return words
    words = ["-launcher", "ssh", "-launcher-exec"]
    if job.library == "impi":
        words = ["-bootstrap", "ssh", "-bootstrap-exec"]
    return [*words, str(agent), "-hosts", ",".join(slots), "-ppn", str(max(slots.values()))]
