"""Every plan is proved over every shape; the verifier refuses what is broken, and says what and where."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from pycomm import _C
from pycomm.topo.outline import COLLECTIVES
from pycomm.topo.topology import Topology
from pycomm.topo.verify.mutants import BREAKERS, hunt, mutants, passes, wrong
from pycomm.topo.verify.numbers import NumberRun, WrongResult
from pycomm.topo.verify.prove import prove_all, prove_shape
from pycomm.topo.verify.shapes import Shape, shapes
from pycomm.topo.verify.ways import ways

Write = Callable[[_C.Program, _C.Group, _C.Span], None]


def written(size: int, chunks: int, write: Write) -> list[_C.Program]:
    """All ranks' programs of an all_reduce, in place, before any pass."""
    programs = []
    for rank in range(size):
        program = _C.Program(rank, size)
        program.set_layout("data", 1, chunks)
        write(program, _C.Group(list(range(size)), rank), _C.Span("data", 0, chunks))
        programs.append(program)
    return programs


def ring(p: _C.Program, g: _C.Group, data: _C.Span) -> None:
    shares = data.split(g.size)
    for k in range(1, g.size):
        p.send(g.peer(+1), shares[(g.index - k) % g.size])
        p.recv_reduce(g.peer(-1), shares[(g.index - k - 1) % g.size])
    for k in range(g.size - 1):
        p.send(g.peer(+1), shares[(g.index - k) % g.size])
        p.recv(g.peer(-1), shares[(g.index - k - 1) % g.size])


def goal(size: int) -> _C.Goal:
    return _C.Goal("all_reduce", size)


def refused(programs: list[_C.Program]) -> str:
    with pytest.raises(_C.ProgramError) as caught:
        _C.verify(programs, goal(len(programs)))
    return str(caught.value)


# -- what is proved ------------------------------------------------------------------------------------


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_plan_is_proved(collective: str) -> None:
    proof = prove_all(max_ranks=8, collectives=[collective], jobs=2)
    assert proof.faults == []
    assert proof.proved > 500


def test_shapes_hold_every_size_grid_and_uneven_split() -> None:
    found = shapes(64)
    sizes = {tuple(map(len, shape.topology.nodes)) for shape in found}
    assert {(n,) for n in range(1, 65)} <= sizes
    assert {(local,) * nodes for nodes in range(2, 33) for local in range(2, 64 // nodes + 1)} <= sizes
    assert {(8, 1), (3, 2, 1), (5, 4, 2, 1), (8, 8, 8, 7), (8, 8, 9)} <= sizes
    assert {len(shape.levels) for shape in found} == {1, 2, 3}
    assert max(shape.topology.world_size for shape in found) == 64
    assert {shape.topology.world_size for shape in shapes(5)} == {1, 2, 3, 4, 5}


def test_rail_groups_that_keep_to_their_rails_declare_nothing() -> None:
    declared = {shape.name: shape.declared for shape in shapes(8) if len(shape.levels) == 2}
    assert declared["2 × 4"] == []
    assert declared["3+2+1"] == []
    assert declared["2 × 2, disjoint rails"] == [(0, 2), (2, 0), (1, 3), (3, 1)]


def test_what_is_not_declared_may_not_cross() -> None:
    disjoint = Topology.from_rails([[0, 1], [2, 3]])
    places = disjoint.node_numbers, disjoint.rail_numbers
    levels = [_C.Level([[0, 1], [2, 3]], "ring"), _C.Level([[0, 2], [1, 3]], "ring")]
    recipe = _C.Recipe(goal(4), levels)
    with pytest.raises(
        _C.ProgramError, match=r"crosses from rail 0 of node 0 to rail 2 of node 1, and \(0, 2\)"
    ):
        _C.prove(recipe, *places)
    traffic = _C.prove(recipe, *places, [(0, 2), (2, 0), (1, 3), (3, 1)])
    assert (traffic.cross_rail, traffic.rail) == (2.0, 0.0)


def test_a_wrong_algorithm_is_a_fault_of_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def crossing(self: Shape) -> list[tuple[int, int]]:
        return []

    shape = next(shape for shape in shapes(4) if "disjoint" in shape.name and len(shape.levels) == 2)
    monkeypatch.setattr(Shape, "declared", property(crossing))
    proof = prove_shape(shape, ["all_reduce"])
    assert proof.proved == 0
    assert proof.faults
    assert all("is not declared" in fault for fault in proof.faults)


# -- what a user is told -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(1, 9))
def test_a_ring_written_in_python_is_right(size: int) -> None:
    programs = written(size, size, ring)
    before = _C.verify(programs, goal(size))
    after = _C.verify(_C.lower(programs, goal(size)), goal(size))
    assert before.same_bits
    assert before.messages == after.messages == 2 * size * (size - 1)
    assert before.local == pytest.approx(2 * (size - 1))


def test_a_deadlock_names_who_waits_for_whom() -> None:
    def receive_first(p: _C.Program, g: _C.Group, data: _C.Span) -> None:
        p.recv_reduce(g.peer(-1), data)
        p.send(g.peer(+1), data)

    assert refused(written(3, 1, receive_first)) == (
        'deadlock: rank 0, channel 0, step 0 "recv_reduce data[0] <- 2" waits for rank 2 to send; '
        'rank 2, channel 0, step 0 "recv_reduce data[0] <- 1" waits for rank 1 to send; '
        'rank 1, channel 0, step 0 "recv_reduce data[0] <- 0" waits for rank 0 to send'
    )


def test_a_contribution_counted_twice_names_rank_step_and_text() -> None:
    def twice(p: _C.Program, g: _C.Group, data: _C.Span) -> None:
        for _ in range(2):
            p.recv_reduce(0, data) if g.index else p.send(1, data)
        p.send(0, data) if g.index else p.recv(1, data)

    assert refused(written(2, 1, twice)) == (
        'rank 1, channel 0, step 1 "recv_reduce data[0] <- 0": it counts a rank twice: it adds chunk 0 of '
        "block 0 of rank 0 to chunk 0 of block 0 summed over all ranks; sent by rank 0, "
        'step 1 "send data[0] -> 1"'
    )


def test_a_message_that_nobody_receives_names_its_step() -> None:
    programs = written(2, 2, ring)
    steps = programs[1].channels[0]
    programs[1] = programs[1].with_channels([steps[:-1]])
    assert refused(programs) == (
        'rank 0, channel 0, step 2 "send data[0] -> 1": nobody receives it: in this channel rank 0 sends '
        "2 messages to rank 1, which receives 1"
    )


# -- the verifier can fail -----------------------------------------------------------------------------


def test_mutants_are_caught_or_as_good_as_before() -> None:
    found = hunt(max_ranks=2)
    assert found.escaped == []
    assert set(found.caught) == {*BREAKERS, "merge"} - {"peer"}  # two ranks have no other peer
    assert found.caught.total() > 10 * found.equivalent.total()


@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all"])
def test_mutants_of_two_levels_are_caught(collective: str) -> None:
    shape = next(shape for shape in shapes(3) if shape.name == "2+1" and len(shape.levels) == 2)
    way = next(way for way in ways(shape, [collective]) if way.channels == 2)
    programs = _C.build(way.recipe)
    caught = 0
    for kind, what, rank, mutant in mutants(programs):
        broken = [*programs[:rank], mutant, *programs[rank + 1 :]]
        if passes(broken, way.goal):
            assert wrong(broken, way.goal) is None, f"{kind}: {what}"
        else:
            caught += 1
    assert caught > 20


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_numbers_agree_with_symbols(collective: str, in_place: bool) -> None:
    for shape in shapes(4):
        for way in ways(shape, [collective]):
            if not way.may_be_refused:
                NumberRun(_C.build(way.recipe), way.goal, seed=1, in_place=in_place).check()


def test_numbers_find_what_is_broken() -> None:
    programs = _C.lower(written(3, 3, ring), goal(3))
    steps = programs[1].channels[0]
    dropped = [*programs[:1], programs[1].with_channels([steps[:-1]]), programs[2]]
    with pytest.raises(WrongResult, match="wait for each other"):
        NumberRun(dropped, goal(3), seed=1, in_place=False).check()
    steps[1].op = "recv"
    changed = [*programs[:1], programs[1].with_channels([steps]), programs[2]]
    with pytest.raises(WrongResult, match="other numbers"):
        NumberRun(changed, goal(3), seed=1, in_place=False).check()


# -- the command ---------------------------------------------------------------------------------------


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pycomm", "verify", *words],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_the_command_says_how_much_was_proved() -> None:
    done = command("--max-ranks", "16", "--collective", "all_gather")
    assert done.returncode == 0, done.stderr
    assert "plans of up to 16 ranks" in done.stdout
    assert "halving needs a power of two" in done.stdout
    assert done.stderr == ""


def test_the_command_hunts_mutants() -> None:
    done = command("--max-ranks", "2", "--mutants", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert "broken programs in" in done.stdout


def test_the_command_refuses_nonsense() -> None:
    assert "0 is not at least 1" in command("--max-ranks", "0").stderr
    assert "invalid choice: 'all_at_once'" in command("--collective", "all_at_once").stderr
