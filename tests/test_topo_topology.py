import subprocess
import sys
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pycomm.topo import Place, Topology
from pycomm.topo.levels import flat, split
from pycomm.topo.rails import rail_groups

RAILS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=5)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Any rails on any nodes, the ranks of a node not always beside each other."""
    places = [Place(f"n{k}", rail) for k, node in enumerate(draw(RAILS)) for rail in node]
    return Topology(draw(st.permutations(places)))


@settings(deadline=None)
@given(topologies())
def test_every_rank_is_on_one_node_at_its_local_index(topology: Topology) -> None:
    assert sorted(rank for node in topology.nodes for rank in node) == list(range(topology.world_size))
    for rank in range(topology.world_size):
        assert topology.nodes[topology.node_of(rank)][topology.local_index(rank)] == rank
        assert topology.rail_of(rank) == topology.places[rank].rail
    assert [node[0] for node in topology.nodes] == sorted(node[0] for node in topology.nodes)


@settings(deadline=None)
@given(topologies(), st.data())
def test_a_subset_renumbers_ranks_and_keeps_their_places(topology: Topology, data: st.DataObject) -> None:
    ranks = data.draw(st.lists(st.sampled_from(range(topology.world_size)), min_size=1, unique=True))
    part = topology.subset(ranks)
    assert [part.places[i] for i in range(len(ranks))] == [topology.places[rank] for rank in ranks]
    assert topology.subset(range(topology.world_size)) == topology


@settings(deadline=None)
@given(topologies(), topologies())
def test_digests_are_equal_where_places_are(one: Topology, other: Topology) -> None:
    assert (one.digest() == other.digest()) == (one == other)


@pytest.mark.parametrize("seed", ["0", "1", "31"])
def test_a_digest_is_the_same_in_every_process(seed: str) -> None:
    code = "from pycomm.topo import Topology; print(Topology.from_sizes([2, 3, 1]).digest())"
    environment = {"PYTHONHASHSEED": seed, "PATH": ""}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert run.stdout.strip() == Topology.from_sizes([2, 3, 1]).digest()


def test_the_source_of_a_rail_is_no_part_of_the_digest() -> None:
    """Ranks may have found the same rail in different ways."""
    assert (
        Topology([Place("a", 0, "PYCOMM_RAIL")]).digest() == Topology([Place("a", 0, "local index")]).digest()
    )


def test_repr_says_what_is_where() -> None:
    assert repr(Topology.from_sizes([2, 1])) == "Topology(2 nodes, 3 ranks: node0[0 1] node1[2])"
    assert repr(Topology.from_rails([[0, 5]])) == "Topology(1 node, 2 ranks: node0[0 1:rail5])"
    assert repr(Topology.grid(16, 8)) == "Topology(16 nodes, 128 ranks: 16 × 8 ranks, 8 rails)"
    assert (
        repr(Topology.from_sizes([8] * 9 + [1]))
        == "Topology(10 nodes, 73 ranks: 9 × 8 + 1 × 1 ranks, 8 rails)"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Topology([]), "at least one rank"),
        (lambda: Topology(cast(list[Place], ["a"])), "rank 0: expected a Place, not 'a'"),
        (lambda: Topology.grid(0, 2), "not 0 × 2"),
        (lambda: Topology.from_sizes([2, 0]), r"every node needs at least one rank, not \[2, 0\]"),
        (lambda: Place("", 0), "the name of its node"),
        (lambda: Place("a", -1), "a rail is a number from 0 to 2147483647, not -1"),
        (lambda: Place("a", 2**31), "a rail is a number from 0 to 2147483647, not 2147483648"),
        (lambda: Place("a", True), "not True"),
        (lambda: Place("a", 0, nics=0), "a place has at least one NIC, not 0"),
        (lambda: Topology.grid(1, 2).subset([0, 0]), "rank 0 comes twice"),
        (lambda: Topology.grid(1, 2).subset([2]), "no rank 2: this topology has ranks 0 … 1"),
        (lambda: Topology.grid(1, 2).subset([]), "at least one rank"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# -- rails and levels ------------------------------------------------------------------------------


@settings(deadline=None)
@given(topologies())
def test_a_rail_group_has_one_rank_of_every_node_and_no_rank_is_in_two(topology: Topology) -> None:
    groups = rail_groups(topology)
    members = [rank for group in groups.groups for rank in group]
    assert len(members) == len(set(members))
    for group in groups.groups:
        assert [topology.node_of(rank) for rank in group] == list(range(len(topology.nodes)))
    assert sorted([*members, *groups.relays]) == list(range(topology.world_size))


@settings(deadline=None)
@given(topologies())
def test_shares_lie_on_the_rails_that_every_node_has(topology: Topology) -> None:
    groups = rail_groups(topology)
    by_node = [[topology.rail_of(rank) for rank in node] for node in topology.nodes]
    wanted = {rail: min(node.count(rail) for node in by_node) for rail in topology.rails}
    if any(wanted.values()):
        assert groups.stays_on_rails
        assert not groups.crossing
        assert groups.rails == tuple(rail for rail, count in wanted.items() for _ in range(count))
        for group, rail in zip(groups.groups, groups.rails, strict=True):
            assert {topology.rail_of(rank) for rank in group} == {rail}
    else:
        assert groups.shares == min(map(len, topology.nodes))
        assert groups.groups == tuple(zip(*topology.nodes, strict=False))


@settings(deadline=None)
@given(topologies())
def test_levels_hold_every_rank_then_the_owners_in_the_order_of_their_shares(topology: Topology) -> None:
    (everyone,) = flat(topology)
    assert sorted(everyone.groups[0]) == list(range(topology.world_size))
    local, rail = split(topology)
    assert sorted(rank for group in local.groups for rank in group) == list(range(topology.world_size))
    for node in local.groups:
        assert len({topology.node_of(rank) for rank in node}) == 1
        for j, group in enumerate(rail.groups):
            assert node[j] in group


def test_the_worked_cases() -> None:
    two_three_one = rail_groups(Topology.from_sizes([2, 3, 1]))
    assert two_three_one.groups == ((0, 2, 5),)
    assert two_three_one.relays == (1, 3, 4)
    eight_one = rail_groups(Topology.from_sizes([8, 1]))
    assert eight_one.groups == ((0, 8),)
    disjoint = rail_groups(Topology.from_rails([[0, 1], [2, 3]]))
    assert disjoint.groups == ((0, 2), (1, 3))
    assert disjoint.rails == (None, None)
    assert disjoint.crossing == {(0, 2), (2, 0), (1, 3), (3, 1)}
    two_on_a_nic = rail_groups(Topology.from_rails([[0, 0, 1, 1], [1, 0, 1, 0]]))
    assert two_on_a_nic.rails == (0, 0, 1, 1)
    assert two_on_a_nic.groups == ((0, 5), (1, 7), (2, 4), (3, 6))
