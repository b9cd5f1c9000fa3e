"""The benchmark's own parts: sizes, data with known results, bandwidths, table, JSON, plot."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycomm.bench.bandwidth import BUSBW_FACTORS, algbw, busbw_factor
from pycomm.bench.pattern import OPS, Pattern
from pycomm.bench.plot import plot
from pycomm.bench.record import Record, Setting, make_record, write_json_lines
from pycomm.bench.sizes import format_size, parse_size, parse_sizes
from pycomm.bench.table import footer, header, row
from pycomm.bench.workload import (
    COLLECTIVES,
    PARTITIONED,
    REDUCING,
    Buffers,
    Workload,
    element_count,
    parse_dtype,
)

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint64", "float16", "bfloat16", "float32", "float64"]


@given(st.integers(0, 1 << 40))
def test_a_formatted_size_is_parsed_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_sizes_lists_and_ranges() -> None:
    assert parse_sizes("8,1K,64K") == [8, 1024, 65536]
    assert parse_sizes("8:64") == [8, 16, 32, 64]
    assert parse_sizes("1K:1M:32") == [1 << 10, 1 << 15, 1 << 20]
    assert parse_sizes("3:20:2,8,6") == [3, 6, 12, 8]
    assert parse_sizes("4MiB") == [4 << 20]
    assert parse_sizes("8:100:3") == [8, 24, 72]


@pytest.mark.parametrize(
    "text", ["", "-8", "8X", "1.5M", "8:4", "0:8", "8:64:1", "8:64:x", "1:2:3:4", "8,,9"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"size|ends|factor|empty"):
        parse_sizes(text)


def reference(op: str, operands: list[Any]) -> Any:
    stacked = np.array(operands, dtype=np.int64)
    if op == "avg":
        total = stacked.sum(axis=0)
        assert (total % len(operands) == 0).all(), "the mean of the pattern is a whole number"
        return total // len(operands)
    reductions: dict[str, Any] = {"sum": np.sum, "product": np.prod, "min": np.min, "max": np.max}
    return reductions[op](stacked, axis=0)


@pytest.mark.parametrize("op", OPS)
@given(ranks=st.integers(1, 40), start=st.integers(0, 10_000), count=st.integers(0, 10_000))
def test_the_predicted_reduction_is_the_reduction(op: str, ranks: int, start: int, count: int) -> None:
    pattern = Pattern(ranks, op, np.dtype(np.int64))
    operands = [pattern.operand(rank, start, count) for rank in range(ranks)]
    predicted = pattern.reduced(start, count)
    assert (predicted == reference(op, operands)).all()
    assert all((part >= 0).all() for part in operands)
    assert predicted.size == 0 or predicted.max() <= 127


@pytest.mark.parametrize("op", OPS)
@given(ranks=st.integers(2, 16), shift=st.integers(1, 4092))
def test_a_shifted_lost_or_doubled_operand_is_seen(op: str, ranks: int, shift: int) -> None:
    count = 8192
    pattern = Pattern(ranks, op, np.dtype(np.int64))
    assert (pattern.reduced(shift, count) != pattern.reduced(0, count)).any()
    operands = [pattern.operand(rank, 0, count) for rank in range(ranks)]
    if op in ("sum", "product", "avg"):
        doubled = [*operands[1:], operands[1]]
        wrong = np.prod(doubled, axis=0) if op == "product" else np.sum(doubled, axis=0)
        assert (wrong != reference("product" if op == "product" else "sum", operands)).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("in_place", [False, True])
def test_shapes_and_counting_of_wrong_elements(collective: str, dtype: str, in_place: bool) -> None:
    ranks, root = 4, 2
    count = element_count(collective, 1000, parse_dtype(dtype), ranks)
    for rank in range(ranks):
        work = Workload(collective, count, parse_dtype(dtype), rank, ranks, root=root)
        buffers = Buffers(work, in_place=in_place)
        assert count == 0 or in_place == np.shares_memory(buffers.source, buffers.target)
        expected = work.expected()
        if expected is None:
            assert buffers.wrong() == 0
            continue
        assert expected.shape == buffers.target.shape
        buffers.target[:] = expected
        assert buffers.wrong() == 0
        buffers.poison()
        assert buffers.wrong() > expected.size * 0.9
        buffers.target[:] = expected
        buffers.target[7] += 1
        assert buffers.wrong() == 1


@given(st.sampled_from(COLLECTIVES), st.integers(0, 5000), st.sampled_from(DTYPES), st.integers(1, 9))
def test_counts_are_enough_and_divisible(collective: str, size: int, dtype: str, ranks: int) -> None:
    kind = parse_dtype(dtype)
    count = element_count(collective, size, kind, ranks)
    if collective == "barrier":
        assert count == 0
    else:
        grain = ranks if collective in PARTITIONED else 1
        assert count % grain == 0
        assert size <= count * kind.itemsize < size + grain * kind.itemsize


@pytest.mark.parametrize("name", ["complex64", "bool", "quad", "U8"])
def test_a_dtype_that_cannot_be_reduced_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="dtype"):
        parse_dtype(name)


def test_bandwidths_are_those_of_nccl_tests() -> None:
    assert algbw(2_000_000_000, 0.5) == 4
    assert algbw(0, 1.0) == 0
    for ranks in range(1, 10):
        assert busbw_factor("all_reduce", ranks) == pytest.approx(2 * (ranks - 1) / ranks)
        for collective in PARTITIONED:
            assert busbw_factor(collective, ranks) == pytest.approx((ranks - 1) / ranks)
        assert busbw_factor("broadcast", ranks) == busbw_factor("reduce", ranks) == 1


def a_record(collective: str, size: int = 4096, wrong: int | None = 0, in_place: bool = False) -> Record:
    dtype = np.dtype("float32")
    work = Workload(collective, element_count(collective, size, dtype, 4), dtype, 0, 4)
    return make_record(work, Setting("pycomm", "ring", 2, in_place), [3e-6, 1e-6, 2e-6], wrong)


def test_a_record_is_a_line_of_json(tmp_path: Path) -> None:
    records = [a_record("all_reduce"), a_record("broadcast", wrong=None)]
    write_json_lines(tmp_path / "folder" / "file.json", records)
    first, second = map(json.loads, (tmp_path / "folder" / "file.json").read_text().splitlines())
    assert (
        first
        | {
            "library": "pycomm",
            "collective": "all_reduce",
            "algorithm": "ring",
            "ranks": 4,
            "nodes": 2,
            "dtype": "float32",
            "redop": "sum",
            "bytes": 4096,
            "in_place": False,
            "median_us": 2.0,
            "p99_us": 3.0,
            "algbw_GBps": 2.048,
            "busbw_GBps": 3.072,
            "wrong": 0,
        }
        == first
    )
    assert second["wrong"] is None
    assert second["root"] == 0


@pytest.mark.parametrize("collective", BUSBW_FACTORS)
def test_the_table_lines_up(collective: str) -> None:
    record = a_record(collective, wrong=None if collective == "barrier" else 3)
    head = header(collective).splitlines()
    line = row(record, record)
    assert len(line) == len(head[2])
    assert row(record, None).count("-") >= 4
    assert ("sum" in line) == (collective in REDUCING)
    assert ("FAILED" in footer([record])) == (record.wrong is not None)


def test_a_plot_is_written_without_a_display(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = [a_record("all_reduce", 1 << k, in_place=bool(k % 2)) for k in range(3, 20)]
    plot(records, tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text()
