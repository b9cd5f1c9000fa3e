"""Jobs on the hosts of a lab: which NICs they take, and that nothing misleads them. Needs root."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pycomm.lab import Lab, layout
from tests.lab_job import WHY_NOT, Job, right, run, within

COUNT = 1 << 20  # float32: 4 MiB
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts on two rails, and one on the first only."""
    with Lab(3, [2, 2, 1], 1000) as built:
        yield built


@pytest.fixture
def pair() -> Iterator[Lab]:
    """Two hosts on two rails, for one test alone, which may spoil them."""
    with Lab(2, 2, 1000) as built:
        yield built


# -- who is where ----------------------------------------------------------------------------------


def test_four_hosts_are_four_nodes_and_bytes_move_on_their_rails() -> None:
    with Lab(4, 2, 1000) as lab:
        before = lab.counters()
        said = run([host for host in lab.hosts for _ in range(2)], COUNT=str(COUNT))
        moved = lab.counters() - before
    right(said)
    assert said[0]["topology"] == "Topology(4 nodes, 8 ranks: node0[0 1] node1[2 3] node2[4 5] node3[6 7])"
    assert said[0]["rails"] == ["0: topology file", "1: topology file"] * 4
    assert said[0]["gbit"] == pytest.approx(1.0)
    for each in said:
        assert each["kinds"].count("shm") == 1
        assert 1 <= each["kinds"].count("tcp") <= 3  # at most N - 1
    share = 2 * 3 / 4 * 4 * COUNT / 2  # of each NIC: 2(N-1)/N of half the data
    for host in moved.sent:
        for nic in host:
            assert share < nic < 1.1 * share
    assert moved.spine_bytes < 0.001 * share


def test_a_node_with_a_nic_less_is_on_the_rails_it_has(lab: Lab) -> None:
    hosts = [host for host in lab.hosts for _ in range(2)]
    said = run(hosts)
    right(said)
    assert said[0]["rails"] == [f"{rail}: topology file" for rail in (0, 1, 0, 1, 0, 0)]
    said = run(hosts, told=False, PYCOMM_NIC="nic")
    right(said)
    assert said[0]["rails"] == [f"{rail}: NIC nic{rail}" for rail in (0, 1, 0, 1, 0, 0)]
    said = run(hosts, told=False)
    right(said)
    assert said[0]["rails"] == ["0: NIC nic0"] * 6


@pytest.mark.parametrize("setting", ["PYCOMM_NODE", "PYCOMM_TRANSPORT"])
def test_ranks_of_one_host_that_share_no_memory_meet_on_loopback(lab: Lab, setting: str) -> None:
    job = Job([host for host in lab.hosts[:2] for _ in range(2)], PYCOMM_RAIL="0", PYCOMM_ALGORITHM="direct")
    before = lab.counters()
    for rank in range(4):
        job.start(rank, **{setting: "tcp" if setting == "PYCOMM_TRANSPORT" else f"virtual{rank}"})
    said = job.said()
    right(said)
    assert [each["kinds"] for each in said] == [["tcp"] * 3] * 4
    assert len(job.hosts) // 2 == len({each["to"][0] for each in said})
    assert (lab.counters() - before).rail_bytes[1] < 10_000


def test_a_rank_with_several_nics_uses_them_all(lab: Lab, tmp_path: Path) -> None:
    """And the host that has one less has one link with each; with two streams, twice as many."""
    profile = tmp_path / "profile"
    profile.write_text('{"limits": {"streams": 2}}')
    before = lab.counters()
    said = run(lab.hosts, COUNT=str(COUNT), PYCOMM_ALGORITHM="direct", PYCOMM_PROFILE=str(profile))
    moved = lab.counters() - before
    right(said)
    assert said[0]["nics"] == [2, 2, 1]
    assert said[0]["rails"] == ["0: topology file"] * 3
    assert [each["links"] for each in said] == [[4, 2], [4, 2], [2, 2]]
    assert moved.sent[0][1] > COUNT  # half of the 4 · COUNT bytes that it sends to rank 1
    assert moved.spine_bytes < 0.001 * 4 * COUNT


# -- which NICs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "shared"),
    [
        ("", ["nic0", "nic1"]),
        ("^lo", ["nic0", "nic1"]),
        ("^=nic0", ["nic1", "nic1"]),
        ("eth", ["eth0", "eth0"]),
        ("=nic1,nic0", ["nic0", "nic1"]),
        ("=eth0", ["eth0", "eth0"]),
    ],
)
def test_nics_by_setting_and_by_trying(lab: Lab, setting: str, shared: list[str]) -> None:
    before = lab.counters()
    said = run(
        [host for host in lab.hosts[:2] for _ in range(2)], told=False, PYCOMM_NIC=setting, COUNT="100000"
    )
    right(said)
    assert [each["shared"] for each in said] == [[name] for name in shared] * 2
    for number, each in enumerate(said):
        assert each["listening"] == sorted([*each["to"], f"127.0.{number % 2 + 1}.{number // 2 + 1}"])
    moved = (lab.counters() - before).rail_bytes
    assert [sent > 100_000 for sent in moved] == [f"nic{rail}" in shared for rail in range(2)]


def test_loopback_is_refused_between_machines(lab: Lab) -> None:
    for each in run(lab.hosts, told=False, PYCOMM_NIC="=lo"):
        assert each["error"].startswith("InvalidArgument: init: PYCOMM_NIC on h0 names loopback")


def test_a_name_that_there_is_not_is_refused_with_what_there_is(lab: Lab) -> None:
    for each in run(lab.hosts[:1], told=False, PYCOMM_NIC="ib"):
        assert (
            "there are eth0 (up, 10.76.0.1, 10 Gbit/s); lo (loopback); nic0 (up, 10.77.0.1" in each["error"]
        )


def test_a_rank_can_pick_its_rail(lab: Lab) -> None:
    job = Job(lab.hosts[:2])
    for rank in range(2):
        job.start(rank, PYCOMM_RAIL="1")
    said = job.said()
    right(said)
    assert said[0]["rails"] == ["1: topology file"] * 2
    assert said[0]["shared"] == ["nic1"]


def test_dead_interfaces_are_dropped_everywhere_with_one_line(pair: Lab) -> None:
    """A bridge without ports, one that is up and has the same address everywhere, a fast cable to nowhere."""
    for host in pair.hosts:
        within(
            host,
            """
            ip link add bridge0 type bridge
            ip address add 172.17.0.1/16 dev bridge0
            ip link set bridge0 up
            ip link add port0 type veth peer name port1
            ip link add docker0 type bridge
            ip link set port0 master docker0
            ip address add 172.18.0.1/16 dev docker0
            ip link set docker0 up; ip link set port0 up; ip link set port1 up
            ip link add aaa0 type veth peer name aaa1
            ip link set aaa0 up; ip link set aaa1 up
            """,
        )
    for number, host in enumerate(pair.hosts):
        within(host, f"ip address add 10.99.0.{number + 1}/24 dev aaa0")
    said = run([host for host in pair.hosts for _ in range(2)], told=False)
    right(said)
    assert [each["shared"] for each in said] == [["nic0"], ["nic1"]] * 2
    lines = [line for each in said for line in each["log"] if "not used" in line]
    assert len(lines) == 1
    assert lines[0].startswith("aaa0 is not used: h")
    assert "cannot reach" in lines[0]


def test_where_all_else_fails_the_way_of_the_rendezvous_is_left(pair: Lab) -> None:
    for rail in range(2):
        pair.faults.cut("h1", rail)
    said = run(pair.hosts, told=False)
    right(said)
    assert said[0]["shared"] == ["eth0"]


def test_where_nothing_works_the_error_lists_what_was_tried(pair: Lab) -> None:
    for rail in range(2):
        pair.faults.blackhole("h1", rail)
    for each in run(pair.hosts, told=False, PYCOMM_NIC="^eth", INIT_S="20"):
        assert each["error"].startswith("Error: init: no network interface connects all 2 machines (nic")
        for rail in range(2):
            assert f"nic{rail}: h" in each["error"]
        assert "Set PYCOMM_NIC" in each["error"]


def test_neither_a_hosts_file_nor_a_numeric_name_misleads(pair: Lab, tmp_path: Path) -> None:
    job = Job(pair.hosts, told=False, MASTER_ADDR="head", PYCOMM_RAIL="0")
    for rank, at in enumerate(("127.0.1.1", pair.hosts[0].address)):
        hosts = tmp_path / f"hosts{rank}"
        hosts.write_text(f"127.0.0.1 localhost 104{rank}\n{at} head\n")
        script = f'hostname 104{rank}; mount --bind {hosts} /etc/hosts; exec "$@"'
        job.start(rank, ["unshare", "--mount", "--uts", "sh", "-ec", script, "sh"])
    said = job.said()
    right(said)
    assert [each["to"] for each in said] == [["10.77.0.1"], ["10.77.0.2"]]


# -- IPv4 and IPv6 ---------------------------------------------------------------------------------


def test_hosts_with_ipv6_alone(pair: Lab) -> None:
    """The rendezvous over IPv4 for one host and IPv6 for the other; no IPv4 on the NICs."""
    nets = {"eth0": "fd00:76", "nic0": "fd00:77:0", "nic1": "fd00:77:1"}
    for number, host in enumerate(pair.hosts):
        for name, net in nets.items():
            on = f"echo 0 > /proc/sys/net/ipv6/conf/{name}/disable_ipv6"
            within(host, f"{on}; ip address add {net}::{number + 1}/64 dev {name} nodad")
        for rail in range(2):  # the leaves pass no multicast, which neighbours are found by
            mac = layout.mac(1 - number, rail)
            there = f"{nets[f'nic{rail}']}::{2 - number}"
            within(host, f"ip neigh add {there} lladdr {mac} dev nic{rail}; ip -4 addr flush dev nic{rail}")
    job = Job(pair.hosts, told=False, PYCOMM_RAIL="0")
    job.start(0, MASTER_ADDR="10.76.0.1")
    job.start(1, MASTER_ADDR="fd00:76::1")
    said = job.said()
    right(said)
    assert [each["to"] for each in said] == [["fd00:77::1"], ["fd00:77::2"]]
    assert said[0]["kinds"] == ["tcp"]


def test_both_loopbacks_lead_to_rank_0(lab: Lab) -> None:
    job = Job([lab.hosts[0]] * 2, told=False)
    job.start(0, MASTER_ADDR="127.0.0.1")
    job.start(1, MASTER_ADDR="::1")
    right(job.said())
    job = Job([lab.hosts[0]] * 2, told=False)
    job.start(0, MASTER_ADDR="::1")
    job.start(1, MASTER_ADDR="127.0.0.1")
    right(job.said())


# -- who comes late, and who is refused something --------------------------------------------------


def test_a_late_rank_is_waited_for(lab: Lab) -> None:
    job = Job(lab.hosts, PYCOMM_RAIL="0")
    for rank in range(3):
        job.start(rank, LATE_S="3" if rank == 1 else "0")
    right(job.said())


def test_every_rank_is_told_who_never_starts(lab: Lab) -> None:
    job = Job(lab.hosts, INIT_S="2")
    for rank in (0, 1):
        job.start(rank)
    for each in job.said():
        assert "TimedOut: init: rank 2 of 3 had not come after 2 s" in each["error"]


SECCOMP = """
import ctypes, os, struct, sys
# if (nr == setsockopt && level == SOL_SOCKET && option == SO_BINDTODEVICE) return EPERM; else allow
RULES = [(0x20, 0, 0, 0), (0x15, 0, 5, 54), (0x20, 0, 0, 24), (0x15, 0, 3, 1), (0x20, 0, 0, 32),
         (0x15, 0, 1, 25), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in RULES))
program = ctypes.create_string_buffer(struct.pack("HP", len(RULES), ctypes.addressof(code)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert prctl(22, 2, ctypes.byref(program), 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the filter has system call numbers of x86-64")
def test_where_binding_to_a_device_is_refused_addresses_will_do(lab: Lab) -> None:
    job = Job([host for host in lab.hosts[:2] for _ in range(2)], COUNT="100000")
    before = lab.counters()
    for rank in range(4):
        job.start(rank, [sys.executable, "-c", SECCOMP])
    said = job.said()
    moved = lab.counters() - before
    right(said)
    for each in said:
        why = f"sockets cannot be bound to {each['shared'][0]} (Operation not permitted)"
        assert [line for line in each["log"] if "bound" in line] == [f"{why}: their addresses decide"]
    assert min(moved.rail_bytes) > 100_000
    assert moved.spine_bytes < 10_000


# -- what is one node ------------------------------------------------------------------------------


def test_own_pid_ipc_and_mount_namespaces_do_not_part_a_node(lab: Lab, tmp_path: Path) -> None:
    """And that a rank dies there is seen at once, for a process handle needs no number that both know."""
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("0123456789abcdef")
    job = Job([lab.hosts[0]] * 2, told=False, PYCOMM_SECRET_FILE=str(secret), DYING="1")
    for rank in range(2):
        own = ["unshare", "--pid", "--ipc", "--mount", "--fork", "--mount-proc", "--kill-child"]
        job.start(rank, own)
    job.ranks.pop(1).communicate(timeout=60)
    said = job.said()
    assert "PeerLost" in said[0]["error"]
    assert "rank 1 (node0, " in said[0]["error"]
    assert said[0]["topology"] == "Topology(1 node, 2 ranks: node0[0 1])"
    assert said[0]["kinds"] == ["shm"]


def test_an_own_network_namespace_parts_a_node_with_one_line(lab: Lab) -> None:
    said = run(lab.hosts[:2], PYCOMM_RAIL="0")
    right(said)
    lines = [[line for line in each["log"] if "namespaces" in line] for each in said]
    assert [each[0].partition(" ")[0] for each in lines] == ["h0:", "h1:"]
    assert all(len(each) == 1 and "so they are separate nodes" in each[0] for each in lines)
