import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pycomm.topo import Limits, Profile, Wire

SECONDS = st.floats(0, 1, allow_nan=False)
WIRES = st.builds(Wire, alpha=SECONDS, message=SECONDS, beta=st.floats(1e-15, 1), gamma=SECONDS)
PROFILES = st.builds(
    Profile,
    local=WIRES,
    network=WIRES,
    limits=st.builds(
        Limits, slice_bytes=st.integers(64, 1 << 30), spin_s=SECONDS, yield_s=SECONDS, nap_s=SECONDS
    ),
    source=st.text(max_size=20),
)


@settings(deadline=None)
@given(PROFILES)
def test_a_profile_survives_json(profile: Profile) -> None:
    assert Profile.from_dict(json.loads(json.dumps(profile.to_dict()))) == profile


@settings(deadline=None)
@given(PROFILES, PROFILES)
def test_digests_are_equal_where_figures_are(one: Profile, other: Profile) -> None:
    same = (one.local, one.network, one.limits) == (other.local, other.network, other.limits)
    assert (one.digest() == other.digest()) == same


@given(PROFILES, st.integers(1, 10**12))
def test_a_nic_limits_the_wire_between_nodes_alone(profile: Profile, bit_per_s: int) -> None:
    limited = profile.limited_to(bit_per_s)
    assert limited.network.beta == max(profile.network.beta, 8 / bit_per_s)
    assert (limited.local, limited.limits) == (profile.local, profile.limits)
    assert profile.limited_to(None) is profile


def test_what_is_left_out_has_its_default() -> None:
    assert Profile.from_dict({"limits": {"slice_bytes": 4096}}).limits == Limits(slice_bytes=4096)
    assert Profile.from_dict({}).local == Profile().local


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"locl": {}}, "profile: unknown key 'locl'; known are limits, local, network, source"),
        ({"local": 3}, "profile.local: expected an object, not 3"),
        ({"local": {"alfa": 1}}, "profile.local: unknown key 'alfa'; known are alpha, beta, gamma, message"),
        ({"local": {"alpha": "1"}}, "profile.local.alpha: expected a number, not '1'"),
        ({"local": {"alpha": True}}, "profile.local.alpha: expected a number, not True"),
        ({"local": {"alpha": 1e-6}}, "profile.local: .*missing"),
        (
            {"network": {"alpha": -1, "message": 0, "beta": 1, "gamma": 0}},
            "profile.network: alpha is a time in seconds from 0 on, not -1",
        ),
        ({"network": {"alpha": 0, "message": 0, "beta": 0, "gamma": 0}}, "beta must be above 0"),
        ({"limits": {"slice_bytes": 1}}, "slice_bytes is at least 64"),
        ({"limits": {"nap_s": -1}}, "nap_s is a time"),
        ({"limits": {"streams": 0}}, "streams is a number from 1 to 16, not 0"),
        ({"limits": {"streams": 1.5}}, "streams is a number from 1 to 16, not 1.5"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(data: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Profile.from_dict(data)
