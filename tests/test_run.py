"""`pycomm run`: prefixes, exit statuses, reasons, and nothing left behind."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pycomm.cli.run import command_line
from pycomm.errors import InvalidArgument
from pycomm.launch.nodes import node_sizes

ROOT = Path(__file__).parent.parent


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "pycomm", "run", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, cwd=ROOT)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that does what its first argument says, and notes its process."""
    path = tmp_path / "script.py"
    path.write_text(
        "import os, sys, time, subprocess\n"
        "rank = int(os.environ['RANK'])\n"
        f"open(f'{tmp_path}/pid{{rank}}', 'w').write(str(os.getpid()))\n"
        "exec(sys.argv[1])\n"
    )
    return path


def left(folder: Path) -> list[int]:
    """Processes of the ranks, and their children, that still run."""
    groups = {path.read_text() for path in folder.glob("pid*")}
    alive = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it ended meanwhile
            continue
        if group in groups and state != "Z":  # a zombie is for init to reap
            alive.append(int(stat.parent.name))
    return alive


def test_each_line_is_marked_by_its_rank(script: Path) -> None:
    done = run(
        "-n", 3, script, "print('out', rank); print('no end', end=''); print('err', rank, file=sys.stderr)"
    )
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == sorted(
        line for rank in range(3) for line in (f"[{rank}] out {rank}", f"[{rank}] no end")
    )
    assert sorted(done.stderr.splitlines()) == [f"[{rank}] err {rank}" for rank in range(3)]


def test_long_lines_of_many_ranks_are_not_mixed(script: Path) -> None:
    done = run("-n", 4, script, "[print(str(rank) * 20000) for _ in range(50)]")
    lines = done.stdout.splitlines()
    assert len(lines) == 200
    assert set(lines) == {f"[{rank}] " + str(rank) * 20000 for rank in range(4)}


def test_ranks_learn_who_they_are(script: Path) -> None:
    names = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "PYCOMM_NODE",
        "PYCOMM_RAIL",
        "MASTER_ADDR",
    )
    done = run("-n", 3, "--nodes", 2, script, f"print(*(os.environ.get(n) for n in {names}))")
    assert sorted(done.stdout.splitlines()) == [
        "[0] 0 3 0 2 node0 0 127.0.0.1",
        "[1] 1 3 1 2 node0 1 127.0.0.1",
        "[2] 2 3 0 1 node1 0 127.0.0.1",
    ]
    done = run(
        "-n",
        1,
        script,
        "print(os.environ.get('PYCOMM_NODE'), os.stat(os.environ['PYCOMM_SECRET_FILE']).st_mode)",
    )
    assert done.stdout == f"[0] None {0o100600}\n"


def test_the_failure_of_one_ends_all_with_its_reason(script: Path) -> None:
    started = time.monotonic()
    done = run("-n", 3, script, "raise ValueError('too bad') if rank == 1 else time.sleep(60)")
    assert time.monotonic() - started < 20
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(r"pycomm run: rank 1 \(pid \d+\) exited with status 1: ValueError: too bad", last)
    assert left(script.parent) == []


def test_exit_status_and_signal_are_told(script: Path) -> None:
    done = run("-n", 2, script, "sys.exit(7) if rank == 0 else time.sleep(60)")
    assert done.returncode == 7
    assert "rank 0" in done.stderr
    done = run("-n", 2, script, "os.kill(os.getpid(), 9) if rank == 1 else time.sleep(60)")
    assert done.returncode == 128 + signal.SIGKILL
    assert re.search(r"rank 1 \(pid \d+\) died of SIGKILL", done.stderr)


def test_who_does_not_heed_the_request_is_killed(script: Path) -> None:
    stubborn = (
        "import signal; signal.signal(15, lambda *_: None); open(sys.argv[0] + str(rank), 'w').close()\n"
    )
    wait = "while len(os.listdir(os.path.dirname(sys.argv[0]))) < 5: time.sleep(0.01)\n"
    end = "sys.exit(3) if rank == 0 else [time.sleep(1) for _ in range(60)]"
    done = run("-n", 2, script, stubborn + wait + end)
    assert done.returncode == 3
    assert left(script.parent) == []


def test_what_a_rank_started_is_ended_too(script: Path) -> None:
    done = run("-n", 2, script, "subprocess.Popen(['sleep', '60']); sys.exit(0)")
    assert done.returncode == 0
    assert left(script.parent) == []


def test_timeout(script: Path) -> None:
    done = run("-n", 2, "--timeout", 1, script, "rank == 0 and time.sleep(60)")
    assert done.returncode == 124
    assert "pycomm run: not done after 1 s: rank 0 still ran" in done.stderr
    assert left(script.parent) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(script: Path, number: signal.Signals) -> None:
    job = subprocess.Popen(
        command("-n", 2, script, "print('ready'); time.sleep(60)"), stdout=-1, stderr=-1, text=True, cwd=ROOT
    )
    assert job.stdout is not None
    ready = {job.stdout.readline(), job.stdout.readline()}
    assert ready == {"[0] ready\n", "[1] ready\n"}
    job.send_signal(number)
    _, said = job.communicate(timeout=30)
    assert job.returncode == 128 + number
    assert f"ended by {number.name}" in said
    assert left(script.parent) == []


def test_no_rank_outlives_a_killed_launcher(script: Path) -> None:
    job = subprocess.Popen(command("-n", 2, script, "print('ready'); time.sleep(60)"), stdout=-1, cwd=ROOT)
    assert job.stdout is not None
    for _ in range(2):
        job.stdout.readline()
    job.kill()
    job.wait()
    job.stdout.close()
    limit = time.monotonic() + 10
    while left(script.parent) and time.monotonic() < limit:
        time.sleep(0.01)
    assert left(script.parent) == []


def test_modules_and_other_commands() -> None:
    assert command_line(["-m", "this", "x"]) == [sys.executable, "-u", "-m", "this", "x"]
    assert command_line(["--", "true"]) == ["true"]
    done = run("-n", 2, "-m", "platform", "terse")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2
    assert run("-n", 1, "sh", "-c", "exit 5").returncode == 5


def test_nodes_are_even_or_as_given() -> None:
    assert node_sizes(None, 8, 2) == [8]
    assert node_sizes(None, None, 2) == [2]
    for ranks in range(1, 20):
        for nodes in range(1, ranks + 1):
            sizes = node_sizes(str(nodes), ranks, ranks)
            assert (sum(sizes), len(sizes)) == (ranks, nodes)
            assert max(sizes) - min(sizes) <= 1
    assert node_sizes("2,3,1", 6, 2) == node_sizes("2,3,1", None, 2) == [2, 3, 1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-n", 0, "x.py"), "has at least 1"),
        (("-n", 2, "--nodes", 3, "x.py"), "2 ranks cannot be on 3 nodes"),
        (("-n", 2, "--nodes", "1,2", "x.py"), "that makes 3 ranks, not 2"),
        (("-n", 2, "--nodes", "1,0", "x.py"), "give a number such as 2, or each one's ranks"),
        (("-n", 2, "--nodes", "0", "x.py"), "give a number such as 2"),
        (("-n", 2, "--nodes", "a", "x.py"), "give a number such as 2"),
        (("-n", 2, "--timeout", "0", "x.py"), "--timeout 0: give a positive number"),
        (("-n", 2, "--timeout", "nan", "x.py"), "--timeout nan: give a positive number"),
        (("-n", 2), "what should the ranks run"),
        (("-n", 2, "no_such.py"), "there is no script no_such.py"),
        (("-n", 2, "no-such-command"), "no-such-command cannot be started: No such file or directory"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[object, ...], says: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert says in done.stderr


def test_an_impossible_node_size_has_a_type() -> None:
    with pytest.raises(InvalidArgument):
        node_sizes("-1", 3, 3)
