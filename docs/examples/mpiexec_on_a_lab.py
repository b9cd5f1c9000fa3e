"""mpiexec over several hosts: Open MPI starts two ranks on each of two hosts of a rail lab.

    sudo .venv/bin/python docs/examples/mpiexec_on_a_lab.py [script.py]

Open MPI enters a host with ssh, or with what `plm_ssh_agent` names: here a script that enters a host of the
lab. On hosts of your own leave that out, and name them in --host; nothing else changes. The script calls
pycomm.init(MPI.COMM_WORLD), so no address and no secret is needed: MPI carries both.
"""

import os
import shlex
import sys
import tempfile
from pathlib import Path

from pycomm.lab import Lab

HERE = Path(__file__).resolve().parent
MPIRUN = HERE.parents[1] / "bench" / "mpirun"
AGENT = """#!/bin/sh
# Called as ssh is: options, a host, words that make a command of the shell.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
case $host in
%s
esac
"""


def write_agent(lab: Lab, path: Path) -> None:
    """What stands in for ssh."""
    cases = (f'{host.name}) exec {shlex.join(host.entry())} sh -c "$*" ;;' for host in lab.hosts)
    path.write_text(AGENT % "\n".join(cases))
    path.chmod(0o700)


def main() -> int:
    script = sys.argv[1] if len(sys.argv) > 1 else str(HERE / "mpi4py_hello.py")
    with Lab(hosts=2, rails=2, rate_mbit=200.0) as lab, tempfile.TemporaryDirectory() as folder:
        agent = Path(folder) / "agent"
        write_agent(lab, agent)
        first = lab.hosts[0]
        environment = {**os.environ, "PYCOMM_NIC": first.environment()["PYCOMM_NIC"]}
        command = [str(MPIRUN), "openmpi", "-n", "4", "--host", "h0:2,h1:2", "--map-by", "slot"]
        command += ["--prtemca", "plm_ssh_agent", str(agent), "--prtemca", "prte_if_include", "eth0"]
        for variable in ("PYCOMM_NIC", "PYTHONPATH", "MPI4PY_LIBMPI", "PATH"):  # a new shell has none of them
            command += ["-x", variable]
        with first.popen([*command, sys.executable, script], environment) as process:
            return process.wait()


if __name__ == "__main__":
    sys.exit(main())
