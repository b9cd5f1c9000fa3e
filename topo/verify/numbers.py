"""Runs programs on numbers, in random order: a judge of programs that knows nothing of the symbolic run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pycomm import _C

Numbers = NDArray[np.int64]

GARBAGE = -(10**15)  # what nobody has written yet holds


class WrongResult(Exception):
    """The programs end with other numbers than the collective does, or do not end."""


@dataclass
class _Lane:
    """One channel of one rank."""

    rank: int
    channel: int
    steps: Sequence[_C.Step]
    at: int = 0
    stage: int = 0  # of a fused step: 0 to receive, 1 and 2 to send on
    target: int = -1  # the rank that a message is on its way to
    message: _C.Span = field(default_factory=lambda: _C.Span("in", 0, 0))


class NumberRun:
    """All ranks' programs, about to run once on random numbers."""

    def __init__(self, programs: Sequence[_C.Program], goal: _C.Goal, seed: int, in_place: bool) -> None:
        """Fill the buffers. `in_place`: one memory for input and output, where there can be."""
        self.programs = programs
        self.goal = goal
        self.dice = random.Random(seed)
        chunks = programs[0].layout("out")[1]
        self.count = chunks + self.dice.randint(1, chunks)  # of a block: no two cuts into chunks are alike
        generator = np.random.default_rng(seed)
        self.inputs = [
            generator.integers(0, 2**40, goal.in_blocks * self.count) for _ in range(goal.world_size)
        ]
        self.memory = [self._buffers(rank, in_place) for rank in range(goal.world_size)]
        self.lanes = {
            (program.rank, channel): _Lane(program.rank, channel, steps)
            for program in programs
            for channel, steps in enumerate(program.channels)
        }

    def check(self) -> None:
        """Run to the end.

        Raises:
            WrongResult: It is not the collective.
        """
        lanes = list(self.lanes.values())
        while any(lane.at < len(lane.steps) or lane.target >= 0 for lane in lanes):
            self.dice.shuffle(lanes)
            moved = [self._advance(lane) for lane in lanes if lane.at < len(lane.steps)]
            if not any(moved):
                raise WrongResult("the programs wait for each other for ever")
        for rank, wanted in enumerate(self._expected()):
            if wanted is not None and not np.array_equal(self.memory[rank]["out"], wanted):
                raise WrongResult(f"rank {rank} ends with other numbers")

    # -- what there is ---------------------------------------------------------------------------------

    def _buffers(self, rank: int, in_place: bool) -> dict[str, Numbers]:
        goal, count = self.goal, self.count
        made = {"in": self.inputs[rank].copy()}
        made["out"] = np.full(goal.out_blocks(rank) * count, GARBAGE, np.int64)
        made["tmp"] = np.full(self.programs[rank].layout("tmp")[0] * count, GARBAGE, np.int64)
        own = slice(rank * count, (rank + 1) * count)
        if not in_place or goal.collective == "all_to_all" or goal.out_blocks(rank) == 0:
            return made
        if goal.collective == "all_gather":
            made["out"][own] = made["in"]
            made["in"] = made["out"][own]
        else:
            made["out"] = made["in"][own] if goal.collective == "reduce_scatter" else made["in"]
        return made

    def _expected(self) -> list[Numbers | None]:
        n, count = self.goal.world_size, self.count
        every = np.stack(self.inputs)
        total = every.sum(axis=0)
        blocks = every.reshape(n, -1, count)
        wanted: dict[str, list[Numbers | None]] = {
            "all_reduce": [total] * n,
            "reduce": [total if rank == self.goal.root else None for rank in range(n)],
            "broadcast": [self.inputs[self.goal.root]] * n,
            "all_gather": [every.ravel()] * n,
            "reduce_scatter": list(total.reshape(-1, count)),
            "all_to_all": [blocks[:, rank % blocks.shape[1]].ravel() for rank in range(n)],
        }
        return wanted[self.goal.collective]

    def _places(self, rank: int, span: _C.Span) -> list[tuple[str, slice]]:
        found = []
        for buffer, index in span.chunks:
            chunks = self.programs[rank].layout(buffer)[1]
            block, chunk = divmod(index, chunks)
            start, end = chunk * self.count // chunks, (chunk + 1) * self.count // chunks
            found.append((buffer, slice(block * self.count + start, block * self.count + end)))
        return found

    def _read(self, rank: int, span: _C.Span) -> Numbers:
        parts = [self.memory[rank][buffer][where] for buffer, where in self._places(rank, span)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _write(self, rank: int, span: _C.Span, numbers: Numbers) -> None:
        at = 0
        for buffer, where in self._places(rank, span):
            size = where.stop - where.start
            self.memory[rank][buffer][where] = numbers[at : at + size]
            at += size
        if at != len(numbers):
            raise WrongResult(f"rank {rank} is sent another length than it expects")

    # -- one step at a time ----------------------------------------------------------------------------

    def _advance(self, lane: _Lane) -> bool:
        """Do what can be done of a lane's step now; whether that is anything."""
        before = lane.at, lane.stage, lane.target
        if self._finish(lane, lane.steps[lane.at]):
            lane.at, lane.stage = lane.at + 1, 0
        return before != (lane.at, lane.stage, lane.target)

    def _finish(self, lane: _Lane, step: _C.Step) -> bool:
        if step.op == "send":
            return self._start_send(lane, step.peer, step.src)
        if step.op in ("recv", "recv_reduce"):
            return (lane.stage > 0 or self._receive(lane, step)) and self._send_on(lane, step)
        if self._overwrites_sent(lane, step.dst):
            return False
        added = self._read(lane.rank, step.addend) if step.op == "reduce" else 0
        self._write(lane.rank, step.dst, self._read(lane.rank, step.src) + added)
        return True

    def _start_send(self, lane: _Lane, target: int, span: _C.Span) -> bool:
        if lane.target >= 0:
            return False
        lane.target, lane.message = target, span
        return True

    def _send_on(self, lane: _Lane, step: _C.Step) -> bool:
        lane.stage = max(lane.stage, 1)
        while lane.stage <= 2:
            target = step.to[lane.stage - 1]
            if target >= 0 and not self._start_send(lane, target, step.dst):
                return False
            lane.stage += 1
        return True

    def _receive(self, lane: _Lane, step: _C.Step) -> bool:
        sender = self.lanes.get((step.peer, lane.channel))
        if sender is None or sender.target != lane.rank or self._overwrites_sent(lane, step.dst):
            return False
        message = self._read(sender.rank, sender.message)
        if step.op == "recv_reduce":
            own = self._read(lane.rank, step.src)
            if len(own) != len(message):
                raise WrongResult(f"rank {lane.rank} is sent another length than it expects")
            message = message + own
        self._write(lane.rank, step.dst, message)
        sender.target = -1
        return True

    def _overwrites_sent(self, lane: _Lane, dst: _C.Span) -> bool:
        if lane.target < 0:
            return False
        memory = self.memory[lane.rank]
        return any(
            np.shares_memory(memory[a][here], memory[b][there])
            for a, here in self._places(lane.rank, dst)
            for b, there in self._places(lane.rank, lane.message)
        )
