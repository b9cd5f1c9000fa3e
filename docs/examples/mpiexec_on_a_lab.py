"""mpiexec over several hosts: sudo .venv/bin/python docs/examples/mpiexec_on_a_lab.py [script.py]

Open MPI starts two ranks on each of two lab hosts. It enters a host with ssh, or with what `plm_ssh_agent`
names: here a script. On hosts of your own leave that out and name them in --host. The script calls
pycomm.init(MPI.COMM_WORLD): MPI carries address and secret.
"""

import os
import shlex
import sys
import tempfile
from pathlib import Path

from pycomm.lab import Lab

HERE = Path(__file__).resolve().parent
MPIRUN = HERE.parents[1] / "bench" / "mpirun"
# Called as ssh is: options, a host, words that make a command of the shell.
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
case $host in
"""

script = sys.argv[1] if len(sys.argv) > 1 else str(HERE / "mpi4py_hello.py")
with Lab(hosts=2, rails=2, rate_mbit=200.0) as lab, tempfile.TemporaryDirectory() as folder:
    agent = Path(folder) / "agent"
    entries = [f'{host.name}) exec {shlex.join(host.entry())} sh -c "$*" ;;\n' for host in lab.hosts]
    agent.write_text("".join([AGENT, *entries, "esac\n"]))
    agent.chmod(0o700)
    command = [str(MPIRUN), "openmpi", "-n", "4", "--host", "h0:2,h1:2", "--map-by", "slot"]
    command += ["--prtemca", "plm_ssh_agent", str(agent), "--prtemca", "prte_if_include", "eth0"]
    for variable in ("PYCOMM_NIC", "PYTHONPATH", "MPI4PY_LIBMPI", "PATH"):  # a new shell has none of them
        command += ["-x", variable]
    environment = {**os.environ, "PYCOMM_NIC": "=nic0,nic1"}
    with lab.hosts[0].popen([*command, sys.executable, script], environment) as job:
        status = job.wait()
sys.exit(status)
