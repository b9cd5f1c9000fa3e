"""Programs from a hostile hand: refused with a typed error, in little time and memory."""

from __future__ import annotations

import contextlib
import gc
import random
import resource
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pycomm import _C

GOAL = _C.Goal("all_reduce", 2)
BUFFERS = ("in", "out", "tmp", "data")
MOST = 1 << 22  # chunks of a buffer


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """What asks for more than 3 GiB gets a MemoryError, which is no ValueError."""
    gc.collect()  # what tests before this one left in cycles counts too
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def programs() -> list[_C.Program]:
    return _C.build(_C.Recipe(GOAL, [_C.Level([[0, 1]], "ring")]))


@pytest.mark.parametrize("layout", [(1 << 30, 1 << 30), (2**31 - 1, 2**31 - 1), (MOST, 2), (-1, 1), (1, 0)])
def test_layouts_have_a_limit(layout: tuple[int, int]) -> None:
    program = _C.Program(0, 2)
    with pytest.raises(_C.ProgramError, match="a layout needs"):
        program.set_layout("tmp", *layout)
    program.set_layout("tmp", MOST, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _C.Span("data", 0, 2**31 - 1),
        lambda: _C.Span("data", 2**31 - 5, 10),
        lambda: _C.Span("data", 0, 10, 2**31 - 1),
        lambda: _C.Span("data", 5, 2).within("tmp", -6),
        lambda: _C.Span("data", 5, 2).within("tmp", 2**31 - 6),
    ],
)
def test_spans_have_a_limit(make: Callable[[], _C.Span]) -> None:
    with pytest.raises(ValueError, match=r"a span's chunks are 0..4194303, not "):
        make()


def test_a_packed_program_with_a_huge_layout_is_refused() -> None:
    packed = programs()[0].pack()
    for buffer in range(len(BUFFERS)):
        at = 24 + 8 * buffer  # six words, then blocks and chunks of each buffer
        for blocks, chunks in ((2**31 - 1, 1), (0x10000, 0x10000), (1, 2**31 - 1), (-1, 1), (1, -1)):
            words = blocks.to_bytes(4, "little", signed=True) + chunks.to_bytes(4, "little", signed=True)
            with pytest.raises(_C.ProgramError, match="a layout needs"):
                _C.Program.parse(packed[:at] + words + packed[at + 8 :])


def test_changed_bytes_give_an_error_or_a_program() -> None:
    first, second = programs()
    packed = first.pack()
    assert _C.Program.parse(packed) == first
    chance = random.Random(1)
    parsed = 0
    for _ in range(3000):
        changed = bytearray(packed)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            program = _C.Program.parse(bytes(changed))
        except _C.ProgramError:
            continue
        parsed += 1
        assert _C.Program.parse(program.pack()) == program
        with contextlib.suppress(ValueError):
            _C.verify([program, second], GOAL)
        with contextlib.suppress(ValueError):
            _C.Bound(program, GOAL, 10, "float32")
    assert parsed > 100


def test_a_rank_that_is_not_there_has_no_program() -> None:
    recipe = _C.Recipe(GOAL, [_C.Level([[0, 1]], "ring")])
    for rank in (-1, 2):
        with pytest.raises(ValueError, match=f"rank {rank} is not in"):
            _C.expand(recipe, rank)


def test_a_program_keeps_to_the_callers_buffers() -> None:
    program = _C.Program(0, 2)
    program.set_layout("in", 9, 1)
    program.set_layout("out", 9, 1)
    program.copy(_C.Span("out", 8, 1), _C.Span("in", 8, 1))
    with pytest.raises(_C.ProgramError, match="outside of the layout"):
        _C.Bound(program, GOAL, 10, "float32")
    with pytest.raises(ValueError, match="a program for 2 ranks cannot be a collective of 3"):
        _C.Bound(programs()[0], _C.Goal("all_reduce", 3), 10, "float32")


def test_a_program_runs_only_where_its_ranks_are() -> None:
    fabric = _C.memory_fabrics(3)[0]
    request = _C.Request("all_reduce", "sum", "float32", 4)
    for size, rank in ((3, 0), (2, 1)):
        goal = _C.Goal("all_reduce", size)
        program = _C.build(_C.Recipe(goal, [_C.Level([list(range(size))], "ring")]))[rank]
        bound = _C.Bound(program, goal, 4, "float32")
        communicator = _C.Communicator(fabric, 0, [0, 1], ["a", "b"])
        with pytest.raises(ValueError, match=f"rank {rank} of {size} cannot run as rank 0 of 2"):
            communicator.prepare(bound, request)


def test_a_call_runs_only_where_it_was_prepared() -> None:
    fabric = _C.memory_fabrics(2)[0]
    one, other = (_C.Communicator(fabric, 0, [0, 1], ["a", "b"]) for _ in range(2))
    bound = _C.Bound(programs()[0], GOAL, 4, "float32")
    prepared = one.prepare(bound, _C.Request("all_reduce", "sum", "float32", 4))
    for call in (other.run, other.start):
        with pytest.raises(ValueError, match="prepared for another communicator"):
            call(prepared, bytearray(16), bytearray(16), 1.0)


@pytest.mark.parametrize(
    ("ranks", "says"), [([0, 3], "no rank 3"), ([0, -1], "no rank -1"), ([0, 0], "rank 0 comes twice")]
)
def test_a_communicator_has_each_rank_once(ranks: list[int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _C.Communicator(_C.memory_fabrics(3)[0], 0, ranks, ["a", "b"])


def test_limits_of_a_communicator() -> None:
    fabric = _C.memory_fabrics(2)[0]
    with pytest.raises(ValueError, match="at least 64 bytes"):
        _C.Communicator(fabric, 0, [0, 1], ["a", "b"], slice_bytes=0)
    bound = _C.Bound(programs()[0], GOAL, 4, "float32")
    array = bytearray(np.ones(4, np.float32).tobytes())
    communicator = _C.Communicator(fabric, 0, [0, 1], ["a", "b"])
    prepared = communicator.prepare(bound, _C.Request("all_reduce", "sum", "float32", 4))
    with pytest.raises(ValueError, match="a timeout must be a number"):
        communicator.run(prepared, array, bytearray(16), float("nan"))
