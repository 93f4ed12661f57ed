"""What pins lack is found before anything is downloaded."""

from __future__ import annotations

from fleetctl.environment.closure import Distribution, unmet
from fleetctl.environment.platform import HostPlatform

DEBIAN = HostPlatform("3.11.2", "x86_64", "2.36").markers


def found(*distributions: Distribution) -> dict[str, Distribution]:
    return {one.name: one for one in distributions}


def one(name: str, version: str, *requires: str, extras: frozenset[str] = frozenset()) -> Distribution:
    return Distribution(name, version, "https://x/y.whl", "00", requires, extras)


def test_complete_pins_lack_nothing() -> None:
    assert unmet(found(one("a", "1", "b>=2"), one("b", "2.1")), DEBIAN) == []


def test_missing_and_too_old_are_named_with_who_wants_them() -> None:
    lines = unmet(found(one("a", "1", "b>=2", "C_c>1"), one("b", "1.9")), DEBIAN)
    assert lines == ["a needs b>=2, pinned is 1.9", "a needs C_c>1, which is not pinned"]


def test_markers_are_the_hosts_not_the_controllers() -> None:
    needs = one("a", "1", "only-old; python_version < '3.11'", "only-arm; platform_machine == 'aarch64'")
    assert unmet(found(needs), DEBIAN) == []
    arm = HostPlatform("3.10.4", "aarch64", "2.35").markers
    assert len(unmet(found(needs), arm)) == 2


def test_an_extra_counts_only_where_it_is_asked_for() -> None:
    a = one("a", "1", "fast; extra == 'speed'")
    assert unmet(found(a), DEBIAN) == []
    assert unmet(found(one("b", "1", "a[speed]"), a), DEBIAN) == ["a needs fast, which is not pinned"]
    asked = one("a", "1", "fast; extra == 'speed'", extras=frozenset({"speed"}))
    assert unmet(found(asked), DEBIAN) == ["a needs fast, which is not pinned"]


def test_extras_that_ask_for_each_other_end() -> None:
    a = one("a", "1", "a[y]; extra == 'x'", "a[x]; extra == 'y'", extras=frozenset({"x"}))
    assert unmet(found(a), DEBIAN) == []


def test_a_prerelease_pin_meets_a_plain_requirement() -> None:
    assert unmet(found(one("a", "1", "b>=1"), one("b", "2.0rc1")), DEBIAN) == []
