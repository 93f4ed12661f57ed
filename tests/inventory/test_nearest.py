"""The right name, where a wrong one was given."""

from __future__ import annotations

import pytest

from fleetctl.inventory.nearest import hint, nearest, nearest_few

NAMES = ["ddtree-sglang-0.5.11", "drv-libcuda", "drv-missing", "Native"]


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ("natvie", "Native"),
        ("drv-libcudda", "drv-libcuda"),
        ("ddtre", "ddtree-sglang-0.5.11"),
        ("drv", None),
        ("nope", None),
        ("", None),
    ],
)
def test_the_nearest_name(wrong: str, name: str | None) -> None:
    assert nearest(wrong, NAMES) == name


def test_those_that_begin_so() -> None:
    assert nearest_few("drv", NAMES) == ["drv-libcuda", "drv-missing"]
    assert nearest_few("drv", [*NAMES, "drv-not-loaded", "drv-no-devices"]) == []


def test_a_hint_names_the_nearest_and_all() -> None:
    assert hint("ddtre", NAMES[:1], "patch sets") == f"did you mean {NAMES[0]}? (patch sets: {NAMES[0]})"
    assert hint("x", [], "patch sets") == "there are no patch sets"
