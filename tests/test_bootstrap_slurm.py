"""Ranks that srun has started, tried without Slurm: by the variables that it sets."""

import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycomm import errors
from pycomm.admission.deadline import Deadline
from pycomm.bootstrap import slurm
from pycomm.bootstrap.environment import from_environment
from pycomm.bootstrap.hostlist import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("node[01-03,7],other", ["node01", "node02", "node03", "node7", "other"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("[1-2]", ["1", "2"]),
        ("tux[0-1,5]-ib0.x", ["tux0-ib0.x", "tux1-ib0.x", "tux5-ib0.x"]),
        ("r[1-2]n[9-10]", ["r1n9", "r1n10", "r2n9", "r2n10"]),
    ],
)
def test_host_lists(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a,",
        ",a",
        "a,,b",
        "a[",
        "a]",
        "a[]",
        "a[1-",
        "n[3-1]",
        "n[a-b]",
        "n[-1]",
        "n[1,]",
        "a b",
        "n[[1]]",
    ],
)
def test_what_is_no_host_list_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="is not a host list such as"):
        expand(text)


def test_a_list_without_end_is_refused() -> None:
    for text in ["n[0-99999999]", "n[1-300][1-300]", ",".join(["n[1-60000]"] * 2)]:
        with pytest.raises(errors.InvalidArgument):
            expand(text)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20), st.integers(1, 4)), min_size=1, max_size=5)
)
def test_ranges_are_what_they_say(ranges: list[tuple[int, int, int]]) -> None:
    said = ",".join(f"{low:0{width}d}-{low + more:0{width}d}" for low, more, width in ranges)
    names = [f"n{low + i:0{width}d}x" for low, more, width in ranges for i in range(more + 1)]
    assert expand(f"n[{said}]x") == names


def task(rank: int, size: int, step: int = 0, **more: str) -> dict[str, str]:
    """What srun sets, and here matters."""
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NTASKS": str(size),
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": str(step),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_JOB_NODELIST": "localhost,elsewhere[1-3]",
        "SLURM_TASKS_PER_NODE": str(size),
        "SLURM_SRUN_COMM_HOST": "192.0.2.1",
        "SLURM_LAUNCH_NODE_IPADDR": "192.0.2.1",
        **more,
    }


def gather(environs: list[dict[str, str]], timeout_s: float = 20.0) -> list[Any]:
    results: dict[int, Any] = {}

    def run(index: int) -> None:
        try:
            bootstrap = from_environment(environs[index], None, Deadline(timeout_s))
            results[index] = bootstrap.all_gather(b"%d" % bootstrap.rank)
            bootstrap.close()
        except errors.Error as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(environs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [results.get(index) for index in range(len(environs))]


def test_the_tasks_of_a_step_meet() -> None:
    assert gather([task(rank, 4) for rank in range(4)]) == [[b"0", b"1", b"2", b"3"]] * 4


def test_two_steps_of_a_job_at_the_same_time_do_not_mix() -> None:
    found = gather([task(rank, 2, step) for step in range(3) for rank in range(2)])
    assert found == [[b"0", b"1"]] * 6


def test_a_port_that_is_taken_is_passed_over() -> None:
    port = slurm.meeting(task(0, 2, 9), None).ports()[0]
    with socket.create_server(("127.0.0.1", port)):
        assert gather([task(rank, 2, 9) for rank in range(2)]) == [[b"0", b"1"]] * 2


def test_where_rank_0_is() -> None:
    assert slurm.meeting(task(0, 2, SLURM_STEP_NODELIST="n[07-12],m"), None).host == "n07"
    environ = task(0, 2)
    del environ["SLURM_STEP_NODELIST"]
    found = slurm.meeting(environ, None)
    assert (found.host, found.several_hosts) == ("localhost", True)
    found = slurm.meeting(task(1, 2, MASTER_ADDR="10.0.0.1", MASTER_PORT="29500"), None)
    assert (found.host, found.ports()[0]) == ("10.0.0.1", 29500)


def test_several_hosts_need_a_secret() -> None:
    (found,) = gather([task(1, 4, SLURM_STEP_NODELIST="localhost,other")])
    assert isinstance(found, errors.InvalidArgument)
    assert "the ranks are on several hosts (rank 0 at localhost)" in str(found)


@pytest.mark.parametrize(
    "environ",
    [
        task(0, 1),
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"},  # a batch script
        task(0, 8, 0xFFFFFFFB),  # likewise
        {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "8"},  # a shell of salloc
    ],
)
def test_a_script_that_srun_has_not_started_is_alone(environ: dict[str, str]) -> None:
    assert gather([environ]) == [[b"0"]]


def test_torchrun_inside_a_step_wins() -> None:
    torchrun = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    assert gather([{**task(3, 4), **torchrun}]) == [[b"0"]]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"PMI_SIZE": "8", "PMI_RANK": "5"}, "started by an MPI launcher"),
        ({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "1"}, "started by an MPI launcher"),
        ({"MPI_LOCALNRANKS": "2"}, "started by an MPI launcher"),
        ({"SLURM_PROCID": "4"}, "rank 4 of 4 does not exist"),
        ({"SLURM_STEP_NUM_TASKS": "x"}, "SLURM_STEP_NUM_TASKS='x' is not a whole number"),
        ({"SLURM_STEP_NODELIST": "a["}, "is not a host list"),
    ],
)
def test_a_wrong_environment_is_refused(more: dict[str, str], says: str) -> None:
    (found,) = gather([{**task(0, 4), **more}])
    assert isinstance(found, errors.InvalidArgument)
    assert says in str(found)


def test_missing_variables_are_named() -> None:
    environ = {name: value for name, value in task(0, 4).items() if "NODELIST" not in name}
    (found,) = gather([environ])
    assert "SLURM_STEP_NODELIST and SLURM_JOB_NODELIST and SLURM_NODELIST are not set" in str(found)


def test_srun_with_an_mpi_plugin_is_srun() -> None:
    """pmi2 sets sizes and ranks of its own, which are the same."""
    environs = [task(rank, 2, 5, PMI_SIZE="2", PMI_RANK=str(rank)) for rank in range(2)]
    assert gather(environs) == [[b"0", b"1"]] * 2
