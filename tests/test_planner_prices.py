from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pycomm.topo import Planner, Profile, Topology, Wire
from pycomm.topo.cost import Payload, Price, Shape, channels_ps
from pycomm.topo.leaves import LEAVES
from pycomm.topo.outline import COLLECTIVES, Team
from pycomm.topo.request import DTYPE_BYTES, REDUCING, REDUCTIONS
from pycomm.topo.traffic import Widths, flows

RAILS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=4)
ALGORITHMS = [(op, name) for op in LEAVES for name in LEAVES[op] if name != "sends"]


def fits(op: str, algorithm: str, size: int) -> bool:
    """Halving is a scatter leaf for powers of two."""
    return algorithm != "halving" or op == "all_reduce" or size & (size - 1) == 0


WIRES = st.builds(
    Wire,
    alpha=st.floats(0, 1e-4),
    message=st.floats(0, 1e-5),
    beta=st.floats(1e-12, 1e-8),
    gamma=st.floats(0, 1e-9),
)


PROFILES = st.builds(Profile, WIRES, WIRES)


@settings(max_examples=60, deadline=None)
@given(RAILS, st.sampled_from(COLLECTIVES), PROFILES, st.data())
def test_no_price_is_below_the_bound(
    rails: list[list[int]], collective: str, profile: Profile, data: st.DataObject
) -> None:
    plan = Planner(_with_nics(rails, data), profile).plan(
        collective,
        count=data.draw(st.integers(0, 1 << 22)),
        dtype=data.draw(st.sampled_from(sorted(DTYPE_BYTES))),
        reduction=data.draw(st.sampled_from(REDUCTIONS)) if collective in REDUCING else None,
    )
    for each in plan.choice.candidates:
        assert each.ps >= plan.bound.ps, each.name


def _with_nics(rails: list[list[int]], data: st.DataObject) -> Topology:
    """Each rank with one NIC or several."""
    places = Topology.from_rails(rails).places
    return Topology(replace(place, nics=data.draw(st.integers(1, 3))) for place in places)


@pytest.mark.parametrize("nics", [2, 3, 4])
def test_striping_over_nics_divides_the_bound_and_the_price(nics: int) -> None:
    fast, slow = Wire(alpha=0, message=0, beta=1e-18, gamma=0), Wire(alpha=0, message=0, beta=1e-9, gamma=0)
    one = Topology.grid(4, 2)
    several = Topology(replace(place, nics=nics) for place in one.places)
    call = {"count": 1 << 22, "dtype": "float32", "reduction": "sum"}
    narrow, wide = (
        Planner(each, Profile(fast, slow)).plan("all_reduce", **call)  # type: ignore[arg-type]
        for each in (one, several)
    )
    assert wide.bound_s * nics == pytest.approx(narrow.bound_s)
    assert wide.predicted_s * nics == pytest.approx(narrow.predicted_s)
    assert several.nics_of(0) == 2 * nics
    assert several.digest() != one.digest()


@pytest.mark.parametrize("nodes", [2, 3, 4, 16])
@pytest.mark.parametrize("local", [1, 2, 4, 8])
def test_rail_first_reaches_the_bound_of_the_network(nodes: int, local: int) -> None:
    """Where the nodes are infinitely fast inside and messages cost nothing: 2(N-1)/N · M/(K·b)."""
    fast = Wire(alpha=0, message=0, beta=1e-18, gamma=0)
    slow = Wire(alpha=0, message=0, beta=1e-9, gamma=0)
    plan = Planner(Topology.grid(nodes, local), Profile(fast, slow)).plan(
        "all_reduce", count=1 << 22, dtype="float32", reduction="sum"
    )
    size = 4 << 22
    assert plan.bound_s == pytest.approx(2 * (nodes - 1) / nodes * size / local * 1e-9)
    assert plan.predicted_s == pytest.approx(plan.bound_s, rel=1e-4)


def test_the_reducing_half_of_16_bit_floats_counts_twice() -> None:
    slow = Wire(alpha=0, message=0, beta=1e-9, gamma=0)
    planner = Planner(Topology.grid(4, 2), Profile(network=slow))
    half = planner.plan("all_reduce", count=1 << 22, dtype="float16", reduction="sum").bound_s
    assert half == pytest.approx(
        1.5 * planner.plan("all_reduce", count=1 << 22, dtype="int16", reduction="sum").bound_s
    )
    assert planner.plan("all_reduce", count=1 << 22, dtype="float16", reduction="max").bound_s < half


@pytest.mark.parametrize(
    ("op", "algorithm", "size"), [(*case, n) for case in ALGORITHMS for n in range(1, 18) if fits(*case, n)]
)
def test_a_formula_counts_the_bytes_of_the_busiest_rank(op: str, algorithm: str, size: int) -> None:
    elements = 5040 * 16  # of which every share has as many
    widths = Widths(2, 4)
    share = Fraction(1, size)
    moves = tuple((i, j, share) for i in range(size) for j in range(size) if i != j)
    team = (
        Team(tuple(range(size)), moves=moves)
        if op == "all_to_all"
        else Team(tuple(range(size)), (share,) * size)
    )
    sent, received = Counter[int](), Counter[int]()
    for a, b, blocks, form in flows(op, algorithm, team):
        moved = int(blocks * elements * size) * widths.of(form)
        sent[a] += moved
        received[b] += moved
    busiest = max([0, *sent.values(), *received.values()])
    payload = Payload(elements * size, elements, 2, 4, 2, slice_bytes=1)
    work = LEAVES[op][algorithm](Shape(size, near=size, owners=size), payload)
    assert work.far.bytes == 0
    folded = algorithm == "halving" and size & (size - 1)
    passed_on = op == "reduce" or (op == "all_reduce" and algorithm == "tree")
    if folded or passed_on:  # formulas take each of its edges to be the widest
        assert busiest <= work.bytes <= 2 * busiest + 4 * elements * size
    else:
        assert work.bytes == busiest


@pytest.mark.parametrize(("op", "algorithm"), ALGORITHMS)
@pytest.mark.parametrize("near", [1, 2, 4, 8])
def test_near_and_far_add_up_to_the_same_work_wherever_the_ranks_are(
    op: str, algorithm: str, near: int
) -> None:
    """Only how fast it goes depends on the nodes."""
    size = near * 4
    payload = Payload(size * 64, 64, 2, 4, 2, slice_bytes=1)
    formula = LEAVES[op][algorithm]
    spread, together = (formula(Shape(size, n, size), payload) for n in (near, size))
    assert spread.bytes == together.bytes
    assert spread.near.messages + spread.far.messages == together.near.messages
    assert spread.far.bytes > 0


def test_channels_hide_the_shorter_of_two_phases_behind_the_longer() -> None:
    near, far = Price(near_ps=100, far_ps=0, idle_ps=10), Price(near_ps=0, far_ps=300, idle_ps=20)
    assert channels_ps([near, far], 1) == 430
    assert channels_ps([near, far], 4) == 430 + 3 * 300


@settings(max_examples=20, deadline=None)
@given(RAILS, st.sampled_from(COLLECTIVES))
def test_a_larger_bucket_is_never_predicted_to_be_faster(rails: list[list[int]], collective: str) -> None:
    planner = Planner(Topology.from_rails(rails))
    reduction = "sum" if collective in REDUCING else None
    sizes = [1 << k for k in range(0, 24, 3)]
    best = [
        planner.plan(collective, count=size, dtype="float32", reduction=reduction).choice.candidates[0].ps
        for size in sizes
    ]
    assert best == sorted(best)
