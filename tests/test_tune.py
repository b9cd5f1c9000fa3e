"""The figures that plans are priced with: how they are fitted, between whom they are measured, and kept."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycomm import cli, settings
from pycomm.errors import InvalidArgument, Mismatch
from pycomm.testing import threads
from pycomm.topo import Profile, Topology, Wire
from pycomm.tune.fit import Samples, fit
from pycomm.tune.probes import local_colour, rail_colour
from pycomm.tune.tuning import measure_profile
from pycomm.wiring.address_book import Entry, check_agreed

SIZES = (1 << 16, 1 << 18, 1 << 20)
RAILS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=5)


@given(
    alpha=st.floats(0, 1e-3),
    message=st.floats(0, 1e-4),
    beta=st.floats(1e-11, 1e-7),
    gamma=st.floats(0, 1e-8),
)
def test_a_wire_without_noise_is_found_again(alpha: float, message: float, beta: float, gamma: float) -> None:
    first = alpha + message
    moved = [(size, first + size * beta) for size in SIZES]
    reduced = [(size, first + size * (beta + gamma)) for size in SIZES]
    found = fit(Samples(first, message, moved, reduced))
    assert found.alpha == pytest.approx(alpha, abs=1e-12)
    assert found.message == pytest.approx(message, abs=1e-12)
    assert found.beta == pytest.approx(beta, rel=1e-3)
    assert found.gamma == pytest.approx(gamma, rel=1e-3, abs=beta * 1e-3)


@given(st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_noise_never_gives_a_wire_that_cannot_be(times: list[float]) -> None:
    moved = list(zip(SIZES, (1e-9 + time for time in times[:3]), strict=True))
    reduced = list(zip(SIZES, (1e-9 + time for time in times[3:6]), strict=True))
    assert isinstance(fit(Samples(times[6], times[7], moved, reduced)), Wire)


def test_one_size_is_no_line() -> None:
    with pytest.raises(ValueError, match="a line needs two sizes"):
        fit(Samples(1, 1, [(8, 1.0)], [(8, 1.0)]))


@given(RAILS)
def test_pairs_are_two_ranks_on_one_node_or_on_one_rail_of_two(rails: list[list[int]]) -> None:
    topology = Topology.from_rails(rails)
    ranks = range(topology.world_size)
    for colour in (local_colour, rail_colour):
        found = {rank: colour(topology, rank) for rank in ranks}
        members: dict[int, list[int]] = {}
        for rank, number in found.items():
            if number is not None:
                members.setdefault(number, []).append(rank)
        for pair in members.values():
            a, b = pair
            same_node = topology.node_of(a) == topology.node_of(b)
            assert same_node == (colour is local_colour)
            assert same_node or topology.rail_of(a) == topology.rail_of(b)
    busy = Counter(
        (topology.node_of(rank), topology.rail_of(rank))
        for rank in ranks
        if rail_colour(topology, rank) is not None
    )
    assert max(busy.values(), default=1) == 1  # one pair for each NIC


def test_all_ranks_find_the_same_profile_and_what_no_pair_has_stays() -> None:
    found = threads(Topology.grid(2, 2), lambda comm: measure_profile(comm, "test"))
    assert all(profile == found[0] for profile in found)
    assert found[0].local != Profile().local
    assert found[0].network != Profile().network
    (alone,) = threads(1, lambda comm: measure_profile(comm, "test"))
    assert (alone.local, alone.network) == (Profile().local, Profile().network)
    assert alone.source.startswith("test; local not measured")


def test_tune_saves_what_init_then_plans_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.json"
    assert cli.main(["tune", "--ranks", "2", "--nodes", "2", "-o", str(path)]) == 0
    assert "all_reduce by" in capfd.readouterr().out
    profile = Profile.from_dict(json.loads(path.read_text()))
    assert profile.source.startswith("pycomm tune: 2 ranks on 2 nodes")
    monkeypatch.setenv("PYCOMM_PROFILE", str(path))
    given = settings.read()
    assert given.profile == profile
    (planned,) = threads(1, lambda comm: comm.plan("all_reduce", 1).profile, settings=given)
    assert planned == profile


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "PYCOMM_PROFILE='.*' cannot be used: it cannot be read: No such file"),
        ("{", "it is not JSON"),
        ('{"limits": {"slice_bytes": 1}}', "slice_bytes is at least 64"),
        ("[]", "profile: expected an object"),
    ],
)
def test_a_profile_that_cannot_be_used_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "profile.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        settings.read({"PYCOMM_PROFILE": str(path)})


def test_unlike_profiles_are_told_at_init() -> None:
    def entry(rank: int, given: settings.Settings) -> Entry:
        return Entry(rank, "1", "a", "a", "", 1, [0], 1.0, None, given.shared())

    plain, tuned = settings.Settings(), settings.Settings(profile=Profile())
    with pytest.raises(Mismatch, match="rank 1 has PYCOMM_PROFILE="):
        check_agreed([entry(0, plain), entry(1, tuned)])


def test_a_missing_folder_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tune", "-o", str(tmp_path / "no" / "profile.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
