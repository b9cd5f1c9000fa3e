"""What a plan says that it sends is what its programs send, and exactly what crosses rails is declared."""

from collections.abc import Iterator

import pytest

from pycomm import _C
from pycomm.topo import Plan, Planner, Topology
from pycomm.topo.candidate import unlike
from pycomm.topo.outline import COLLECTIVES
from pycomm.topo.plan import Choice
from pycomm.topo.rails import rail_groups
from pycomm.topo.request import REDUCING, ROOTED

SHAPES = [
    *(
        Topology.from_sizes(sizes)
        for sizes in ([1], [2], [3], [6], [1, 1], [2, 2], [4, 4], [3, 3, 3], [2, 2, 2, 2])
    ),
    *(Topology.from_sizes(sizes) for sizes in ([2, 3, 1], [8, 1], [1, 2, 1], [5, 2], [3, 1])),
    *(
        Topology.from_rails(rails)
        for rails in ([[0, 1], [2, 3]], [[0, 1], [1, 2], [1, 0]], [[0, 1, 2], [3, 4]])
    ),
    *(
        Topology.from_rails(rails)
        for rails in ([[0, 0, 1, 1]] * 2, [[0, 0, 1], [0, 1, 1]], [[1, 0], [0, 1]], [[0], [1]])
    ),
    Topology.grid(2, 3).subset([0, 3, 1, 4, 2, 5]),  # the nodes take turns
]


# A fold leaves a power of two of ranks with the chunks of all: one may own a chunk more than another.
TOLERANCE = {False: 1e-9, True: 0.15}


def folds(plan: Plan) -> bool:
    """Whether an all_reduce by halving folds its ranks to a power of two."""
    level = plan.recipe.levels[-1]
    size = len(level.groups[0])
    return level.algorithm == "halving" and size & (size - 1) != 0


def plans(topology: Topology, collective: str) -> Iterator[Plan]:
    """A plan for every candidate, as if it had been chosen."""
    planner = Planner(topology)
    for root in range(topology.world_size if collective in ROOTED else 1):
        reduction = "sum" if collective in REDUCING else None
        plan = planner.plan(collective, count=16, dtype="bfloat16", reduction=reduction, root=root)
        for each in unlike(plan.choice.candidates):
            choice = Choice(each, each, plan.choice.candidates, "rail_first", "every candidate is tried")
            yield Plan(topology, plan.profile, plan.request, choice)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("topology", SHAPES, ids=repr)
def test_traffic_is_what_the_proof_counts(topology: Topology, collective: str) -> None:
    for plan in plans(topology, collective):
        proof, blocks = plan.proof, plan.traffic.blocks
        assert proof is not None
        said = (
            plan.traffic.within(blocks),
            sum(plan.traffic.along(blocks).values()),
            plan.traffic.across(blocks),
        )
        counted = (proof.local, proof.rail, proof.cross_rail)
        assert [float(each) for each in said] == pytest.approx(counted, rel=TOLERANCE[folds(plan)])


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("topology", SHAPES, ids=repr)
def test_exactly_the_pairs_that_cross_are_declared(topology: Topology, collective: str) -> None:
    for plan in plans(topology, collective):
        ranks = range(topology.world_size)
        meet = {(a, b) for a in ranks for b in plan.peers(a) if topology.crosses(a, b)}
        assert meet == {pair for a, b in plan.declared for pair in ((a, b), (b, a))}
        nodes, rails = topology.node_numbers, topology.rail_numbers
        goal = _C.Goal(collective, topology.world_size, plan.request.root)
        for left_out in plan.declared[:3]:
            rest = [pair for pair in plan.declared if pair != left_out]
            with pytest.raises(_C.ProgramError):
                _C.verify(plan.programs, goal, list(nodes), list(rails), rest)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("topology", SHAPES, ids=repr)
def test_rail_first_sends_nothing_across_rails_while_a_rail_is_on_every_node(
    topology: Topology, collective: str
) -> None:
    reduction = "avg" if collective in REDUCING else None
    for count in (0, 1, 1 << 20):
        plan = Planner(topology).plan(collective, count=count, dtype="float32", reduction=reduction)
        assert plan.proof is not None
        if rail_groups(topology).stays_on_rails:
            assert plan.declared == ()
            assert plan.proof.cross_rail == 0


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("topology", SHAPES, ids=repr)
def test_where_all_must_cross_no_candidate_sends_less_across_than_the_chosen(
    topology: Topology, collective: str
) -> None:
    reduction = "sum" if collective in REDUCING else None
    plan = Planner(topology).plan(collective, count=1 << 20, dtype="float32", reduction=reduction)
    sent = [each.traffic(plan.request) for each in unlike(plan.choice.candidates)]
    assert plan.traffic.across(plan.traffic.bytes) == min(each.across(each.bytes) for each in sent)
