"""The rail lab: what it builds, and that nothing of it is ever left."""

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pycomm.errors import InvalidArgument, Unsupported
from pycomm.lab import Counters, Lab, LabHost, check, why_not
from pycomm.lab.job import job, ranks
from pycomm.lab.rates import parse_rate, rate_text

BYTES = 1 << 20
SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 5000)) as server:
    print("listening", flush=True)
    connection = server.accept()[0]
    total = 0
    while piece := connection.recv(1 << 16):
        total += len(piece)
    print(total)
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[2], 5000), 10, (sys.argv[1], 0)) as connection:
    connection.sendall(bytes(int(sys.argv[3])))
"""
REACHES = """
import socket, sys
with socket.socket() as probe:
    probe.bind((sys.argv[1], 0))
    probe.settimeout(0.6)
    try:
        probe.connect((sys.argv[2], 1))
    except ConnectionRefusedError: # nobody listens: the host has answered
        print("yes")
    except OSError:
        print("no")
"""
JOB = """
import numpy as np, pycomm
with pycomm.init(timeout_s=20) as comm:
    total = comm.all_reduce(np.full(1 << 18, comm.rank + 1, np.float32))
    assert (total == sum(range(comm.size + 1))).all()
    print(len(comm.topology.nodes), [len(node) for node in comm.topology.nodes])
"""
HOLDS_A_LAB = """
import subprocess, sys, time
from pycomm.lab import Lab
lab = Lab(2, 2)
# A process whose parent has gone, in a session of its own: no signal to a group finds it.
lab.hosts[1].popen(["sh", "-c", f"setsid sleep {sys.argv[1]} & exec sleep {sys.argv[1]}"])
lab.hosts[0].popen(["sh", "-c", f"setsid sleep {sys.argv[1]} &"]).wait()
print(lab._holder.pid, flush=True)
time.sleep(60)
"""
COMMANDS = """
import shlex, sys
from pycomm.cli import main
for command in sys.argv[1:]:
    print(main(["lab", *shlex.split(command)]))
    print("====")
"""
ROOT = Path(__file__).parent.parent


WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts on two rails, and one on the first only."""
    with Lab(3, [2, 2, 1], 200, 100) as built:
        yield built


def output(host: LabHost, *command: str, **options: Any) -> str:
    with host.popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        text = process.communicate(timeout=20)[0]
    assert process.returncode == 0
    return str(text).strip()


def test_without_root_it_is_refused() -> None:
    os.seteuid(65534)
    try:
        for attempt in (Lab, Lab.find):
            with pytest.raises(Unsupported, match="need root"):
                attempt()
    finally:
        os.seteuid(0)


def send(lab: Lab, source: tuple[int, int], target: tuple[int, int], size: int = BYTES) -> Counters:
    """What the links carried while `size` bytes went from one (host, rail) to another."""
    near, far = (lab.hosts[host].rail_addresses[rail] for host, rail in (source, target))
    before = lab.counters()
    command = [sys.executable, "-c", SERVER, far]
    with lab.hosts[target[0]].popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        output(lab.hosts[source[0]], sys.executable, "-c", CLIENT, near, far, str(size))
        assert int(server.stdout.read()) == size
    return lab.counters() - before


def test_a_host_has_its_own_name_interfaces_and_files(lab: Lab) -> None:
    for index, host in enumerate(lab.hosts):
        nics = [f"nic{rail}" for rail in range(lab.layout.rails[index])]
        assert output(host, "hostname") == host.name == f"h{index}"
        assert output(host, "ls", "/sys/class/net").split() == ["eth0", "lo", *nics]
        assert output(host, "getent", "hosts", *(h.name for h in lab.hosts)).split()[::2] == [
            h.address for h in lab.hosts
        ]
        assert output(host, "pwd") == os.getcwd()
        environment = host.environment()
        assert environment["PYCOMM_NIC"] == "=" + ",".join(nics)
        topology = json.loads(output(host, "cat", environment["PYCOMM_TOPO_FILE"]))
        assert topology == {
            "format": "pycomm-topology-1",
            "nics": {nic: {"rail": rail, "bit_per_s": 200_000_000} for rail, nic in enumerate(nics)},
        }


@pytest.mark.parametrize("rail", [0, 1])
def test_bytes_along_a_rail_move_its_counters_only(lab: Lab, rail: int) -> None:
    moved = send(lab, (0, rail), (1, rail))
    assert BYTES < moved.sent[0][rail] < 1.03 * BYTES
    assert BYTES < moved.received[1][rail] < 1.03 * BYTES
    assert moved.sent[0][1 - rail] + moved.received[1][1 - rail] + sum(moved.sent[2]) == 0
    assert moved.spine_bytes + sum(moved.spine_down) < 1000  # the question for the peer's MAC is heard by all


def test_bytes_from_rail_to_rail_cross_the_spine(lab: Lab) -> None:
    moved = send(lab, (2, 0), (1, 1))
    assert BYTES < moved.spine_up[0] < 1.03 * BYTES
    assert BYTES < moved.spine_down[1] < 1.03 * BYTES
    assert moved.rail_bytes[0] > BYTES > moved.rail_bytes[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 1), "^0 hosts: a lab has 1 … 64"),
        ((65, 1), "65 hosts"),
        ((2, 17), "17 rails: a host has 1 … 16"),
        ((2, [1, 1, 1]), "rails for 3 hosts are given, but there are 2"),
        ((2, 2, 0.0), "0 Mbit/s"),
        ((2, 2, float("nan")), "nan Mbit/s"),
        ((2, 2, 100.0, 1e9), "1e.09 Mbit/s"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Lab(*arguments)


def test_a_job_over_the_hosts_has_one_node_for_each(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    before = lab.counters()
    assert job(lab, [sys.executable, "-c", JOB], timeout_s=40).run() == 0
    assert sorted(capfd.readouterr().out.splitlines()) == [f"[{rank}] 3 [2, 2, 1]" for rank in range(5)]
    moved = lab.counters() - before
    assert all(sent > 100_000 for host in moved.sent[:2] for sent in host[:1])
    places = [rank.host.name for rank in ranks(lab, [1, 3, 1])]
    assert places == ["h0", "h1", "h1", "h1", "h2"]
    with pytest.raises(InvalidArgument, match="ranks for 2 hosts are given, but there are 3"):
        ranks(lab, [1, 1])


def reaches(lab: Lab, rail: int) -> bool:
    """Whether h0 reaches h1 along a rail."""
    near, far = (host.rail_addresses[rail] for host in lab.hosts[:2])
    return output(lab.hosts[0], sys.executable, "-c", REACHES, near, far) == "yes"


def carrier(host: LabHost, nic: str) -> bool:
    return output(host, "cat", f"/sys/class/net/{nic}/carrier") == "1"


def test_a_cut_link_has_no_carrier_until_it_is_restored(lab: Lab) -> None:
    lab.faults.cut("h1", 1)
    assert not carrier(lab.hosts[1], "nic1")
    assert carrier(lab.hosts[0], "nic1")
    assert not reaches(lab, 1)
    assert reaches(lab, 0)
    lab.faults.restore("h1", 1)
    assert carrier(lab.hosts[1], "nic1")
    assert send(lab, (0, 1), (1, 1)).spine_bytes < 1000


def test_a_black_hole_keeps_its_carrier(lab: Lab) -> None:
    lab.faults.cut(1, 0)
    lab.faults.blackhole(1, 0)
    lab.faults.restore(1, 0)
    lab.faults.blackhole(1, 0)
    assert carrier(lab.hosts[1], "nic0")
    assert not reaches(lab, 0)
    assert reaches(lab, 1)
    lab.faults.restore(1, 0)
    assert send(lab, (0, 0), (1, 0)).spine_bytes < 1000


def test_a_slow_link_is_slow_both_ways(lab: Lab) -> None:
    def rates() -> list[str]:
        inside = output(lab.hosts[2], "tc", "qdisc", "show", "dev", "nic0")
        outside = lab._holder.run("fabric", ["tc", "qdisc", "show", "dev", "h2r0"])
        return re.findall(r"rate (\w+)", inside + outside)

    lab.faults.slow("h2", 0, 20)
    assert rates() == ["20Mbit", "20Mbit"]
    lab.faults.restore("h2", 0)
    assert rates() == ["200Mbit", "200Mbit"]


@pytest.mark.parametrize(("host", "rail"), [("h3", 0), (3, 0), (-1, 0), ("eth0", 0), ("h2", 1), (0, -1)])
def test_a_fault_needs_a_link(lab: Lab, host: int | str, rail: int) -> None:
    with pytest.raises(InvalidArgument, match=r"there is no host|is on rails 0 … \d, not on"):
        lab.faults.cut(host, rail)


def test_two_labs_at_once_are_apart(lab: Lab) -> None:
    with Lab(2, 1) as other:
        before = lab.counters()
        assert send(other, (0, 0), (1, 0)).sent[0][0] > BYTES
        sent = (lab.counters() - before).sent
        assert sum(map(sum, sent)) < 1000  # ARP may ask again about neighbours of earlier tests
        server = lab.hosts[1].popen(["sleep", "60"])
    assert server.poll() is None  # the other lab took only its own with it
    server.kill()
    server.wait()


def test_a_closed_lab_has_ended_its_processes_and_says_so() -> None:
    lab = Lab(2, 1)
    process = lab.hosts[0].popen(["sleep", "60"])
    lab.close()
    lab.close()
    assert process.wait(0) == -signal.SIGKILL
    for use in (lab.counters, lambda: lab.hosts[0].popen(["true"]), lambda: lab.faults.cut(0, 0)):
        with pytest.raises(InvalidArgument, match="this lab has ended"):
            use()


def running(marker: str) -> list[str]:
    """Processes with this word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # it ended meanwhile
            continue
        if marker.encode() in words:
            found.append(path.parent.name)
    return found


def wait_until_running(marker: str, number: int) -> None:
    limit = time.monotonic() + 20
    while len(running(marker)) != number and time.monotonic() < limit:
        time.sleep(0.02)
    assert len(running(marker)) == number


def holds_nothing(pid: int) -> bool:
    """True if a process that was killed has let go of descriptors and namespaces, though nobody may have
    collected it yet.
    """
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        try:
            os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            return not (Path(f"/proc/{pid}/fd").exists() and os.listdir(f"/proc/{pid}/fd"))
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("victim", ["creator", "holder"])
def test_kill_9_leaves_nothing(victim: str) -> None:
    """A namespace exists while a process, a descriptor or a mount holds it. Ours have no mounts, and only the
    holder has descriptors: so no process means no namespace, no interface, no queue.
    """
    marker = f"{secrets.randbelow(10**9) + 10**9}"
    command = [sys.executable, "-c", HOLDS_A_LAB, marker]
    interfaces = {name for _, name in socket.if_nameindex()}
    creator = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert creator.stdout is not None
        holder = int(creator.stdout.readline())
        wait_until_running(marker, 4)  # the creator and three that sleep
        os.kill(creator.pid if victim == "creator" else holder, signal.SIGKILL)
        wait_until_running(marker, 0 if victim == "creator" else 1)
        assert holds_nothing(holder)
    finally:
        creator.kill()
        creator.communicate()
    added = {name for _, name in socket.if_nameindex()} - interfaces
    assert not [name for name in added if re.fullmatch(r"(nic|leaf|up|down)\d+|h\d+(m|r\d+)|mgmt", name)]


def pycomm(host: LabHost, *commands: str) -> list[str]:
    """What each `pycomm lab …` says, and its exit status; in a host, where it meets no other lab."""
    program = [sys.executable, "-u", "-c", COMMANDS, *commands]
    with host.popen(
        program, text=True, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        text = process.communicate(timeout=60)[0]
    return str(text).split("====\n")[:-1]


def test_the_command_from_up_to_down(lab: Lab) -> None:
    host = lab.hosts[0]
    up, again = pycomm(host, "up --rails 2,1 --rate 100mbit --spine 1gbit", "up")
    assert up.endswith("\n0\n")
    assert [word for word in ("h0", "h1", "100 Mbit/s", "1 Gbit/s", "TCP") if word not in up] == []
    assert again == "pycomm lab: a lab is up already: `pycomm lab down` removes it\n2\n"
    # Other processes find it.
    inside, job, fault, counters = pycomm(
        host,
        "exec h1 -- sh -c 'hostname; exit 7'",
        "run -- sh -c 'echo $RANK $LOCAL_RANK $MASTER_ADDR `hostname`'",
        "fault cut h1 0",
        "counters --json",
    )
    assert inside == "h1\n7\n"
    places = ["0 0 10.76.0.1 h0", "1 1 10.76.0.1 h0", "2 0 10.76.0.1 h1"]
    assert sorted(job.splitlines()) == ["0", *(f"[{place[0]}] {place}" for place in places)]
    assert fault == "rail 0 of h1: cut; pycomm lab fault restore h1 0 undoes it\n0\n"
    assert [len(sent) for sent in json.loads(counters.splitlines()[0])["sent"]] == [2, 1]
    assert pycomm(host, "down", "counters") == [
        "the lab is gone\n0\n",
        "pycomm lab: no lab is up: start one with `pycomm lab up`\n2\n",
    ]


def test_check_measures_what_was_built(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that no link is faster than built: how busy this machine is, nobody knows."""
    monkeypatch.setattr(check, "MEASURE_S", 0.5)
    found = list(check.check(lab))
    assert [finding.wanted_mbit for finding in found] == [200, 200, 100]
    assert all(0 < finding.most_mbit < 1.2 * finding.wanted_mbit for finding in found)


def test_rates_are_read_and_written() -> None:
    assert [parse_rate(text) for text in ("200mbit", "2.5gbit", "1500kbit")] == [200, 2500, 1.5]
    assert [rate_text(mbit) for mbit in (200, 2500, 1.5)] == ["200 Mbit/s", "2.5 Gbit/s", "1.5 Mbit/s"]
    for text in ("200", "mbit", "-1mbit", "200MB", "0mbit", "1e3mbit"):
        with pytest.raises(InvalidArgument, match=r"no rate|a link has"):
            parse_rate(text)
