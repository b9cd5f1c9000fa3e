import json
from pathlib import Path

import pytest

from pycomm.cli import main
from pycomm.topo import Profile, Wire


def said(capsys: pytest.CaptureFixture[str], command: str) -> str:
    assert main(["plan", *command.split()]) == 0
    return capsys.readouterr().out


def test_it_prints_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "all_reduce --ranks 8 --nodes 2 --bytes 1M --algorithm local=direct,rail=ring")
    assert "all_reduce of up to 1.00 MiB · 8 ranks on 2 nodes" in text
    assert "hierarchical(direct, ring)" in text
    assert "no byte crosses a rail" in text


def test_nodes_are_even_or_as_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert "8 ranks on 2 nodes" in said(capsys, "all_reduce --nodes 2")
    assert "5 ranks on 2 nodes" in said(capsys, "all_reduce --ranks 5 --nodes 2")
    assert "6 ranks on 3 nodes" in said(capsys, "all_reduce --nodes 3,2,1")
    assert "6 ranks on 3 nodes" in said(capsys, "all_reduce --nodes 3,2,1 --ranks 6")


def test_steps_are_those_of_one_rank(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "broadcast --ranks 2 --bytes 64 --root 1 --steps 0")
    assert "rank 0, step by step" in text
    assert "recv out[" in text
    assert "] <- 1" in text


def test_bytes_are_those_of_the_larger_buffer(capsys: pytest.CaptureFixture[str]) -> None:
    for collective in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce"):
        assert f"{collective} of up to 64.0 KiB" in said(capsys, f"{collective} --ranks 4 --bytes 64K")
    assert said(capsys, "barrier --ranks 4").startswith("barrier · 4 ranks on 1 node\n")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("all_reduce --ranks 2 --nodes 3", "2 ranks cannot be on 3 nodes"),
        ("all_reduce --ranks 0", "a job has at least 1"),
        ("all_reduce --nodes 2,0", "--nodes 2,0: give a number such as 2, or each one's ranks"),
        ("all_reduce --nodes 2;3", "--nodes 2;3: give a number such as 2"),
        ("all_reduce --nodes 3,2 --ranks 4", "that makes 5 ranks, not 4"),
        ("all_reduce --nodes 2 --rails 0,1/0,1", "give --ranks and --nodes, or --rails"),
        ("all_reduce --rails 0,1/2,3 --policy strict", "no rail is on every node"),
        (
            "all_reduce --algorithm fast",
            "all_reduce has no algorithm 'fast'; algorithms of all_reduce here: ",
        ),
        (f"all_reduce --rails 0,{2**40}/1", "a rail is a number from 0 to"),
        ("all_reduce --steps 8", "--steps 8: ranks are 0 … 7"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    capsys: pytest.CaptureFixture[str], command: str, message: str
) -> None:
    assert main(["plan", *command.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["--bytes 3X", "--rails 0,a", "--dtype float7", "--op xor"])
def test_arguments_that_cannot_be_read_are_refused(capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "all_reduce", *wrong.split()])
    assert wrong.split()[0] in capsys.readouterr().err


def test_a_profile_prices_the_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    slow = Wire(alpha=1e-3, message=0, beta=1e-6, gamma=0)
    path.write_text(json.dumps(Profile(network=slow).to_dict()))
    command = "all_reduce --ranks 2 --nodes 2 --bytes 1M"
    assert "1.05 s" in said(capsys, f"{command} --profile {path}")
    assert "1.05 s" not in said(capsys, command)
    assert main(["plan", *command.split(), "--profile", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err
