"""Interfaces: what PYCOMM_NIC names, what a topology file says, what is a candidate, who gets which NIC."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycomm import settings
from pycomm.errors import Error, InvalidArgument
from pycomm.nic_filter import NAME_LIMIT, NicFilter
from pycomm.nics import Interface, interfaces, natural
from pycomm.offer import FOUND, NAMED, TOPOLOGY_FILE, Nic, Offer, offer
from pycomm.settings import Settings
from pycomm.topo.topology_file import NicSpec, parse
from pycomm.wiring import choice
from pycomm.wiring.address_book import Entry
from pycomm.wiring.choice import Railed
from pycomm.wiring.networks import Networks

ROOT = Path(__file__).parent.parent
NAMES = st.text("abcnieth0123456789.", min_size=1, max_size=NAME_LIMIT)
GIGA = 10**9


def nic(name: str, address: str = "10.0.0.1", **about: object) -> Interface:
    known = {"up": True, "carrier": True, "addresses": (address,), "bit_per_s": 100 * GIGA, **about}
    return Interface(name, **known)  # type: ignore[arg-type]


LOOPBACK = nic("lo", "127.0.0.1", kind="loopback", bit_per_s=None)


def offered(here: list[Interface], met_at: str | None = None, **given: object) -> Offer:
    if isinstance(given.get("nic"), str):
        given["nic"] = NicFilter.parse(str(given["nic"]))
    return offer(Settings(**given), here, met_at)  # type: ignore[arg-type]


def names(found: Offer) -> list[str]:
    return [each.name for each in found.nics]


# -- PYCOMM_NIC ------------------------------------------------------------------------------------


@given(st.lists(NAMES, min_size=1), st.booleans(), st.booleans())
def test_a_filter_is_read_back_from_its_text(listed: list[str], exact: bool, excludes: bool) -> None:
    chosen = NicFilter(tuple(listed), exact, excludes)
    assert NicFilter.parse(str(chosen)) == chosen


@given(st.lists(NAMES, min_size=1), NAMES, st.booleans())
def test_an_exclusion_picks_what_the_same_list_does_not(listed: list[str], name: str, exact: bool) -> None:
    text = "=" * exact + ",".join(listed)
    assert NicFilter.parse(text).picks(name) != NicFilter.parse("^" + text).picks(name)
    assert NicFilter.parse(text).picks(name) == any(
        name == each if exact else name.startswith(each) for each in listed
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("^", "a name is missing"),
        ("=eth0,", "a name is missing"),
        ("eth,^lo", r"\^ stands once, before all names"),
        ("=eth0,=eth1", "= stands once"),
        ("=^eth0", r"\^ stands once"),
        ("eth0:1", "no interface has ':' in its name"),
        ("eth 0", "no interface has ' ' in its name"),
        ("abcdefghijklmnop", "longer than an interface's name can be, 15 characters"),
    ],
)
def test_what_is_no_filter_is_refused_by_the_settings(text: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        settings.read({"PYCOMM_NIC": text})
    assert "PYCOMM_NIC=" in str(caught.value)


def test_what_a_filter_names_are_the_candidates() -> None:
    here = [LOOPBACK, nic("docker0", kind="overlay"), nic("eth0", bit_per_s=None), nic("ib0"), nic("ib1")]
    assert names(offered(here)) == ["docker0", "eth0", "ib0", "ib1"]
    assert names(offered(here, nic="ib,eth")) == ["eth0", "ib0", "ib1"]
    assert names(offered(here, nic="=ib1,ib9")) == ["ib1"]
    assert names(offered(here, nic="^docker,ib")) == ["eth0"]
    assert names(offered(here, nic="^=ib0")) == ["docker0", "eth0", "ib1"]
    assert offered(here, nic="ib").source == NAMED
    assert offered(here, nic="^ib").source == offered(here).source == FOUND


def test_loopback_is_a_candidate_only_by_its_exact_name() -> None:
    here = [LOOPBACK, nic("eth0")]
    assert names(offered(here, nic="=lo")) == ["lo"]
    assert names(offered(here, nic="^eth1")) == ["eth0"]
    with pytest.raises(InvalidArgument, match=r"PYCOMM_NIC=lo leaves .*: there are lo \(loopback\); eth0"):
        offered(here, nic="lo")


def test_no_match_lists_the_interfaces() -> None:
    here = [
        LOOPBACK,
        nic("eth0", up=False),
        nic("eth1", carrier=False),
        nic("eth2", "fe80::1"),
        nic("eth3", bit_per_s=None),
    ]
    with pytest.raises(InvalidArgument) as caught:
        offered(here, nic="ib")
    assert str(caught.value) == (
        "PYCOMM_NIC=ib leaves no usable interface: there are lo (loopback); eth0 (down); eth1 (no carrier); "
        "eth2 (no address that another machine could reach); eth3 (up, 10.0.0.1, speed unknown)"
    )


def test_init_refuses_names_that_there_are_not() -> None:
    code = "import pycomm\ntry: pycomm.init()\nexcept pycomm.InvalidArgument as error: print(error)"
    environ = {**os.environ, "PYCOMM_NIC": "=nosuch0"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environ, timeout=60
    )
    assert run.stdout.startswith("PYCOMM_NIC==nosuch0 leaves no usable interface: there are "), run.stderr
    assert "lo (loopback)" in run.stdout


# -- interfaces ------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**6), unique=True))
def test_natural_order_counts(numbers: list[int]) -> None:
    ordered = sorted((f"nic{number}" for number in numbers), key=natural)
    assert ordered == [f"nic{number}" for number in sorted(numbers)]


@given(NAMES, NAMES)
def test_natural_order_tells_all_names_apart(one: str, other: str) -> None:
    assert (natural(one) == natural(other)) == (one == other)


def test_the_interfaces_of_this_machine() -> None:
    found = interfaces()
    loopback = next(each for each in found if each.kind == "loopback")
    assert loopback.fault == "loopback"
    assert "127.0.0.1" in loopback.addresses or not loopback.up
    assert all(natural(a.name) < natural(b.name) for a, b in pairwise(found))


# -- topology files --------------------------------------------------------------------------------


@given(st.dictionaries(NAMES, st.tuples(st.integers(0, 9), st.integers(1, 10**12) | st.none()), min_size=1))
def test_a_topology_file_gives_rails_and_rates(nics: dict[str, tuple[int, int | None]]) -> None:
    said = {name: {"rail": rail, "bit_per_s": rate} for name, (rail, rate) in nics.items()}
    text = json.dumps({"format": "pycomm-topology-1", "nics": said})
    assert parse(text) == {name: NicSpec(*each) for name, each in nics.items()}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[1]", '"format" is None: this pycomm reads "pycomm-topology-1"'),
        ('{"format": "pycomm-topology-2"}', "'pycomm-topology-2'"),
        ('{"format": "pycomm-topology-1", "nics": {}}', '"nics" is an object'),
        ('{"format": "pycomm-topology-1", "nics": {"a": {"rail": 0}}, "x": 1}', "the file: unknown key 'x'"),
        ('{"format": "pycomm-topology-1", "nics": {"a": 1}}', "nics.a: expected an object"),
        ('{"format": "pycomm-topology-1", "nics": {"a": {"rail": "0"}}}', "nics.a.rail: .*not '0'"),
        ('{"format": "pycomm-topology-1", "nics": {"a": {"rail": -1}}}', "nics.a.rail: .*not -1"),
        ('{"format": "pycomm-topology-1", "nics": {"a": {"rail": true}}}', "nics.a.rail: .*not True"),
        ('{"format": "pycomm-topology-1", "nics": {"a": {"speed": 0}}}', "nics.a: unknown key 'speed'"),
        ('{"format": "pycomm-topology-1", "nics": {"a": {"rail": 0, "bit_per_s": 0}}}', "at least 1, not 0"),
        ('{"format": "pycomm-topology-1", "nics": {"a": {"rail": 0, "bit_per_s": NaN}}}', "not nan"),
    ],
)
def test_what_is_no_topology_file_is_refused_with_its_place(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text)
    (tmp_path / "file").write_text(text)
    with pytest.raises(InvalidArgument, match=f"PYCOMM_TOPO_FILE={tmp_path}/file: "):
        offered([nic("a")], topo_file=f"{tmp_path}/file")


def test_a_topology_file_wins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "file"
    said = {"a0": {"rail": 3}, "a1": {"rail": 0, "bit_per_s": 5}, "a2": {"rail": 1}, "a9": {"rail": 7}}
    file.write_text(json.dumps({"format": "pycomm-topology-1", "nics": said}))
    here = [LOOPBACK, nic("a0"), nic("a1"), nic("a2", up=False), nic("b0")]
    found = offered(here, topo_file=str(file))
    assert [(each.name, each.rail, each.bit_per_s) for each in found.nics] == [
        ("a1", 0, 5),
        ("a0", 3, 100 * GIGA),
    ]
    assert found.source == TOPOLOGY_FILE
    warned = [record.getMessage() for record in caplog.records]
    assert [text.split(" is not used")[0] for text in warned] == ["a2", "a9"]  # half the NICs: not in silence
    assert [text.rpartition(": ")[2] for text in warned] == ["down", "there is no such interface"]
    caplog.clear()
    assert names(offered(here, topo_file=str(file), nic="=a0")) == ["a0"]
    assert not caplog.records  # left out by PYCOMM_NIC
    with pytest.raises(InvalidArgument, match=r"names no usable interface: there are lo .*; b0 \(up"):
        offered([LOOPBACK, nic("b0")], topo_file=str(file))
    with pytest.raises(InvalidArgument, match=r"PYCOMM_TOPO_FILE=/none/x: No such file"):
        offered(here, topo_file="/none/x")


# -- candidates ------------------------------------------------------------------------------------


def groups(*offers: Offer) -> list[list[str]]:
    found = choice.candidates({f"m{index}": each for index, each in enumerate(offers)})
    return [[each.name for each in group] for group in found]


def test_the_top_speed_comes_first_then_unknown_speeds_then_bridges() -> None:
    here = [
        nic("docker0", "172.17.0.1", kind="overlay"),
        nic("eth0", bit_per_s=GIGA),
        nic("nic2"),
        nic("nic10"),
        nic("usb0", bit_per_s=None),
    ]
    assert groups(offered(sorted(here, key=lambda each: natural(each.name)))) == [
        ["nic2", "nic10"],
        ["eth0"],
        ["usb0"],
        ["docker0"],
    ]


def test_the_nic_of_the_rendezvous_is_left_out_where_others_are_as_fast() -> None:
    slow, fast = nic("eth0", "10.1.0.1", bit_per_s=GIGA), nic("eth0", "10.1.0.1")
    rails = [nic("nic0", "10.2.0.1"), nic("nic1", "10.3.0.1")]
    assert groups(offered([fast, *rails], "10.1.0.1"))[0] == ["nic0", "nic1"]
    assert groups(offered([slow, *rails], "10.1.0.1"))[0] == ["nic0", "nic1"]
    slow_rails = [nic("nic0", "10.2.0.1", bit_per_s=GIGA)]
    assert groups(offered([fast, *slow_rails], "10.1.0.1"))[0] == ["eth0"]


def test_candidates_are_what_all_machines_have() -> None:
    two, three = [nic("nic0"), nic("nic1")], [nic("nic0"), nic("nic1"), nic("nic2")]
    assert groups(offered(three), offered(two)) == [["nic0", "nic1"]]
    mixed = [nic("nic0", bit_per_s=GIGA), nic("nic1")]
    assert groups(offered(two), offered(mixed)) == [["nic1"], ["nic0"]]


def test_machines_without_a_name_in_common_are_matched_by_place() -> None:
    one = offered([nic("docker0", kind="overlay"), nic("ens1"), nic("ens2")])
    other = offered([nic("p1"), nic("p2"), nic("p3")])
    assert groups(one, other)[0] == ["ens1 and p1", "ens2 and p2"]


def test_a_machine_with_nothing_to_offer_is_named() -> None:
    hosts = {"m0": "h0", "m1": "h1"}
    with pytest.raises(
        Error, match=r"h1 has no interface that other machines could reach it at, and the job"
    ):
        choice.check_offers({"m0": offered([nic("a")]), "m1": offered([LOOPBACK])}, hosts)
    with pytest.raises(InvalidArgument, match="PYCOMM_NIC on h0 names loopback"):
        choice.check_offers({"m0": offered([LOOPBACK], nic="=lo"), "m1": offered([nic("a")])}, hosts)


# -- who gets what ---------------------------------------------------------------------------------


def test_a_named_nic_has_the_same_rail_on_every_machine() -> None:
    some, all_ = offered([nic("nic1")], nic="nic"), offered([nic("nic0"), nic("nic1")], nic="nic")
    found = choice.named({"a": all_, "b": some})
    assert [each.rail for each in found["a"]] == [0, 1]
    assert [(each.rail, each.nic.name) for each in found["b"]] == [(1, "nic1")]
    unlike = choice.named({"a": offered([nic("x5")], nic="x"), "b": offered([nic("y7")], nic="y")})
    assert [[each.rail for each in nics] for nics in unlike.values()] == [[0], [0]]


@given(st.integers(1, 9), st.integers(1, 9))
def test_ranks_share_the_nics_evenly(nics: int, ranks: int) -> None:
    here = [Railed(rail, Nic(f"nic{rail}", ())) for rail in range(nics)]
    shares = [[each.rail for each in choice.share(here, index, ranks, None)] for index in range(ranks)]
    assert all(each[0] == index % nics for index, each in enumerate(shares))
    if ranks <= nics:
        assert sorted(rail for each in shares for rail in each) == list(range(nics))
    else:
        assert all(len(each) == 1 for each in shares)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    for rail in range(2 * nics):
        assert [each.rail for each in choice.share(here, 0, ranks, rail)] == [rail % nics]


@given(st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=2, max_size=2))
def test_links_are_the_same_from_both_sides_and_stay_on_rails_if_they_can(
    rails: list[set[int]],
) -> None:
    mine, theirs = ([Railed(r, Nic(f"{side}{r}", ())) for r in sorted(rails[side])] for side in (0, 1))
    there, back = choice.pairs(mine, theirs), choice.pairs(theirs, mine)
    assert there == [(a, b) for b, a in back]
    assert there
    common = rails[0] & rails[1]
    assert len(there) == (len(common) or min(map(len, rails)))
    if common:
        assert all(a.name[1:] == b.name[1:] for a, b in there)


def test_ranks_that_were_given_nics_of_their_own_keep_them() -> None:
    here = [nic("nic0", "10.1.0.1"), nic("nic1", "10.2.0.1")]
    book = [
        Entry(rank, "1", machine, machine, "", 1, [0], 1.0, None, {}, offer=offered(here, nic=own).packed())
        for rank, (machine, own) in enumerate((m, f"=nic{i}") for m in ("a/1", "b/1") for i in (1, 0))
    ]
    networks = Networks(book, 0)
    assert [[(each.rail, each.nic.name) for each in share] for share in networks.shares] == [
        [(1, "nic1")],
        [(0, "nic0")],
        [(1, "nic1")],
        [(0, "nic0")],
    ]


def test_the_slowest_nic_in_use_is_known() -> None:
    fast, slow = nic("nic0"), nic("nic1", "10.2.0.1", bit_per_s=GIGA)
    unused = nic("eth0", "10.3.0.1", bit_per_s=1000)
    book = [
        Entry(rank, "1", f"m{rank}/1", f"m{rank}/1", "", 1, [0], 1.0, None, {}, offer=each.packed())
        for rank, each in enumerate(
            [offered([unused, fast], nic="nic"), offered([unused, fast, slow], nic="nic")]
        )
    ]
    networks = Networks(book, 0)
    assert [len(share) for share in networks.shares] == [1, 2]
    assert networks.bit_per_s() == GIGA
