import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pycomm import _C
from pycomm.topo import CrossesRails, Plan, Planner, Topology
from pycomm.topo.leaves import LEAVES
from pycomm.topo.outline import COLLECTIVES
from pycomm.topo.request import REDUCING, bucket_bytes

GRID = Topology.grid(2, 4)
UNEVEN = Topology.from_sizes([2, 3, 1])
DISJOINT = Topology.from_rails([[0, 1], [2, 3]])


def planned(topology: Topology, collective: str = "all_reduce", **wanted: Any) -> Plan:
    reduction = "sum" if collective in REDUCING else None
    wanted = {"count": 1 << 20, "dtype": "float32", "reduction": reduction, **wanted}
    policy = wanted.pop("policy", "rail_first")
    return Planner(topology, policy=policy).plan(collective, **wanted)


def test_plans_are_kept_by_what_all_ranks_know() -> None:
    planner = Planner(GRID)
    plan = planner.plan("all_reduce", count=1000, dtype="float32", reduction="sum")
    assert planner.plan("all_reduce", count=1024, dtype="int32", reduction="max") is plan
    assert planner.plan("all_reduce", count=1000, dtype="float32", reduction="sum", root=3) is plan
    assert planner.plan("all_reduce", count=1025, dtype="float32", reduction="sum") is not plan
    assert (
        planner.plan("all_reduce", count=1000, dtype="float32", reduction="sum", algorithm="ring") is not plan
    )
    assert planner.plan("broadcast", count=9, dtype="int8") is not planner.plan(
        "broadcast", count=9, dtype="int8", root=1
    )


def test_16_bit_floats_under_max_are_planned_like_integers() -> None:
    planner = Planner(GRID)
    plan = planner.plan("all_reduce", count=1000, dtype="float16", reduction="max")
    assert planner.plan("all_reduce", count=1000, dtype="int16", reduction="sum") is plan
    assert planner.plan("all_reduce", count=1000, dtype="bfloat16", reduction="sum") is not plan


@settings(deadline=None)
@given(st.integers(0, 1 << 40))
def test_buckets_are_powers_of_two(size: int) -> None:
    bucket = bucket_bytes(size)
    assert bucket >= max(64, size)
    assert bucket & (bucket - 1) == 0
    assert bucket == 64 or bucket < 2 * size


def test_every_process_plans_the_same() -> None:
    code = """
from pycomm.topo import Planner, Topology
for topology in (Topology.grid(2, 4), Topology.from_sizes([2, 3, 1]), Topology.from_rails([[0, 1], [2, 3]])):
    planner = Planner(topology)
    for count in (1, 1 << 20):
        for collective in ("all_reduce", "all_to_all", "broadcast"):
            reduction = "sum" if collective == "all_reduce" else None
            plan = planner.plan(collective, count=count, dtype="float32", reduction=reduction)
            print(plan.explain(), *[program.pack().hex() for program in plan.programs])
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            env={"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            check=True,
        ).stdout
        for seed in ("0", "77")
    }
    assert len(said) == 1
    assert said.pop()


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_leaf_can_be_asked_for(collective: str) -> None:
    for name in LEAVES[collective]:
        plan = planned(GRID, collective, algorithm=name)
        assert plan.algorithm == name
        assert len(plan.recipe.levels) == 1
        assert plan.proof is not None


@pytest.mark.parametrize("topology", [GRID, UNEVEN, DISJOINT], ids=repr)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_hierarchical_can_be_asked_for_on_any_nodes(topology: Topology, collective: str) -> None:
    plan = planned(topology, collective, algorithm="hierarchical", count=1)
    assert len(plan.recipe.levels) == 2
    assert plan.proof is not None


def test_levels_can_be_asked_for_by_name() -> None:
    plan = planned(GRID, algorithm={"local": "direct", "rail": "ring"})
    assert plan.algorithm == "hierarchical(direct, ring)"
    assert [level.algorithm for level in plan.recipe.levels] == ["direct", "ring"]
    assert planned(GRID, algorithm={"rail": "tree"}).algorithm.endswith(", tree)")
    assert planned(GRID, algorithm={"local": "tree"}).algorithm.startswith("hierarchical(tree, ")


def test_what_is_asked_for_is_done_also_where_it_crosses_rails() -> None:
    plan = planned(GRID, algorithm="ring")
    assert plan.declared == ((3, 4), (7, 0))
    assert "asked for" in plan.choice.why


@pytest.mark.parametrize(
    ("topology", "collective", "wanted", "message"),
    [
        (GRID, "all_sum", {}, "unknown collective 'all_sum'; known are all_reduce, "),
        (GRID, "all_reduce", {"dtype": "float8"}, "unknown dtype 'float8'; known are "),
        (GRID, "all_reduce", {"reduction": "xor"}, "unknown reduction 'xor'; known are sum, "),
        (GRID, "all_reduce", {"reduction": None}, "all_reduce needs a reduction: sum, "),
        (GRID, "all_gather", {"reduction": "sum"}, "all_gather reduces nothing: leave out reduction='sum'"),
        (GRID, "all_reduce", {"count": -1}, "from 0 on, not -1"),
        (GRID, "reduce", {"root": 8}, "root 8 is no rank: there are ranks 0 … 7"),
        (
            GRID,
            "all_reduce",
            {"policy": "fast"},
            "unknown policy 'fast'; known are rail_first, cheapest, strict",
        ),
        (
            GRID,
            "all_reduce",
            {"algorithm": "rong"},
            "all_reduce has no algorithm 'rong'; algorithms of all_reduce here: ",
        ),
        (
            GRID,
            "broadcast",
            {"algorithm": "halving"},
            "here: direct, ring, tree, hierarchical, or a dict such as ",
        ),
        (GRID, "all_reduce", {"algorithm": 3}, "algorithm= takes a name or a dict"),
        (GRID, "all_reduce", {"algorithm": {}}, "algorithm= takes a name or a dict"),
        (GRID, "all_reduce", {"algorithm": {"nic": "ring"}}, "no level 'nic': levels are local and rail"),
        (
            GRID,
            "all_to_all",
            {"algorithm": {"rail": "tree"}},
            "level 'rail' of all_to_all has no algorithm 'tree': it has direct, ring",
        ),
        (
            Topology.grid(2, 3),
            "all_reduce",
            {"algorithm": {"local": "halving"}},
            "halving needs a power of two as a scatter leaf; a group of level 'local' has 3 ranks",
        ),
        (
            Topology.grid(1, 6),
            "reduce_scatter",
            {"algorithm": "halving"},
            "halving needs a power of two as a scatter leaf; a group of level 'all' has 6 ranks; "
            "algorithms of reduce_scatter here: direct, ring",
        ),
        (
            Topology.grid(1, 6),
            "all_reduce",
            {"algorithm": "hierarchical"},
            "hierarchical plans need two nodes",
        ),
        (
            Topology.grid(6, 1),
            "all_reduce",
            {"algorithm": {"rail": "ring"}},
            "hierarchical plans need two nodes",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused(
    topology: Topology, collective: str, wanted: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        planned(topology, collective, **wanted)
    assert message in str(refused.value)


def test_policies() -> None:
    small: dict[str, Any] = {"collective": "all_to_all", "count": 1 << 18}
    assert planned(UNEVEN, policy="cheapest", **small).declared
    assert not planned(UNEVEN, **small).declared
    assert not planned(UNEVEN, policy="strict", **small).declared
    assert planned(DISJOINT).declared
    with pytest.raises(CrossesRails, match="no rail is on every node"):
        planned(DISJOINT, policy="strict")


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4), st.sampled_from(COLLECTIVES), st.integers(0, 1 << 22)
)
def test_the_policies_differ_only_in_what_they_pass_over(
    sizes: list[int], collective: str, count: int
) -> None:
    topology = Topology.from_sizes(sizes)
    cheapest, chosen = (
        planned(topology, collective, count=count, policy=p) for p in ("cheapest", "rail_first")
    )
    assert cheapest.predicted_s <= chosen.predicted_s
    assert cheapest.choice.chosen.ps == min(each.ps for each in chosen.choice.candidates)
    staying = [each for each in chosen.choice.candidates if not each.crosses]
    if len(sizes) > 1 and staying:
        assert chosen.choice.chosen.ps == min(each.ps for each in staying)


def test_a_barrier_is_an_all_reduce_of_no_elements() -> None:
    plan = planned(GRID, "barrier", count=0)
    assert plan.collective == "barrier"
    assert plan.recipe.goal.collective == "all_reduce"


def test_a_large_plan_is_built_without_a_proof_of_its_own() -> None:
    plan = planned(Topology.grid(9, 8), count=1)
    assert plan.proof is None
    assert len(plan.programs) == 72
    assert set(plan.peers(0)) <= {*range(8), *range(0, 72, 8)}


def test_explain_says_what_matters() -> None:
    text = planned(UNEVEN, "reduce_scatter").explain()
    assert "rank 1 by rank 0, rank 3 by rank 2, rank 4 by rank 2" in text
    assert "no byte crosses a rail" in text
    assert "rail-first costs " in text
    crossing = planned(DISJOINT).explain()
    assert "declared: 0→2, 1→3, 2→0, 3→1" in crossing
    assert "only the declared pairs cross rails" in crossing
    assert "asked for; the planner's own choice is " not in crossing
    assert "the planner's own choice is " in planned(GRID, algorithm="ring").explain()


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4), st.sampled_from([*COLLECTIVES, "barrier"]), st.data()
)
@settings(max_examples=30, deadline=None)
def test_explain_explains_anything(sizes: list[int], collective: str, data: st.DataObject) -> None:
    topology = Topology.from_sizes(sizes)
    policy = data.draw(st.sampled_from(["rail_first", "cheapest"]))
    plan = planned(topology, collective, count=data.draw(st.integers(0, 1 << 30)), policy=policy)
    text = plan.explain()
    assert plan.algorithm in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("topology", [GRID, UNEVEN], ids=repr)
def test_programs_of_a_plan_are_what_its_recipe_builds(topology: Topology) -> None:
    plan = planned(topology)
    assert plan.programs == _C.build(plan.recipe)
    assert plan.program(1) == plan.programs[1]
