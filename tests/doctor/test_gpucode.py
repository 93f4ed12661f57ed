"""Which GPU code runs on which card, and which nvcc a service's builds find."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.doctor.toolkit import knows, newer_toolkits, nvcc
from fleetctl.environment.gpucode import Capability, named, parse, runs_by
from tests.doctor import builders

CARDS = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)]


@pytest.mark.parametrize(
    ("code", "cards"),
    [
        ("sass:80", [(8, 0), (8, 6), (8, 9)]),
        ("sass:86", [(8, 6), (8, 9)]),
        ("sass:90", [(9, 0)]),
        ("sass:90a", [(9, 0)]),
        ("sass:100", [(10, 0), (10, 3)]),
        ("sass:100a", [(10, 0)]),
        ("sass:100f", [(10, 0), (10, 3)]),
        ("sass:103f", [(10, 3)]),
        ("sass:120", [(12, 0), (12, 1)]),
        ("sass:120a", [(12, 0)]),
        ("sass:120f", [(12, 0), (12, 1)]),
        ("sass:121a", [(12, 1)]),
        ("ptx:90", [(9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)]),
        ("ptx:90a", [(9, 0)]),
        ("ptx:100f", [(10, 0), (10, 3)]),
        ("ptx:121", [(12, 1)]),
    ],
)
def test_the_cards_that_run_a_piece_of_code(code: str, cards: list[Capability]) -> None:
    assert [card for card in CARDS if runs_by([code], card)] == cards


def test_what_is_no_code_runs_nowhere() -> None:
    assert parse("sass:") is None and parse("elf:90") is None and parse("sass:90x") is None
    assert runs_by(["", "sass:x", "120"], (12, 0)) == set()
    assert named((12, 0)) == "SM 12.0"


@given(st.sampled_from(CARDS), st.sampled_from(["", "a", "f"]), st.sampled_from(["sass", "ptx"]))
def test_a_card_runs_what_was_made_for_it(card: Capability, suffix: str, kind: str) -> None:
    assert runs_by([f"{kind}:{card[0]}{card[1]}{suffix}"], card) == {kind}


@given(st.sampled_from(CARDS), st.sampled_from(CARDS), st.sampled_from(["sass", "ptx"]))
def test_a_suffix_never_widens(made: Capability, card: Capability, kind: str) -> None:
    code = f"{kind}:{made[0]}{made[1]}"
    assert runs_by([code + "a"], card) <= runs_by([code + "f"], card) <= runs_by([code], card)


def test_the_nvcc_is_that_of_the_services_cuda_home() -> None:
    known = builders.context({"facts": {"toolkits": ["12.8", "13.0"]}, "service": {}})
    assert known is not None
    assert nvcc(known) == ("12.8.88", "/usr/local/cuda-12.8")
    assert [path for _, path in newer_toolkits(known, "12.9")] == ["/usr/local/cuda-13.0"]
    for home, version in (
        ("/usr/local/cuda-13.0/", "13.0.88"),
        ("/opt/cuda-12.4", "12.4"),
        ("/opt/cuda", None),
    ):
        given_home = {"variables": {"CUDA_HOME": home}}
        named_home = builders.context({"facts": {"toolkits": ["12.8", "13.0"]}, "service": given_home})
        assert named_home is not None
        assert nvcc(named_home) == (version, home)


def test_a_toolkit_knows_the_cards_of_its_time() -> None:
    assert knows("12.8.93", (12, 0)) and not knows("12.8.93", (12, 1)) and knows("12.9.86", (12, 1))
    assert knows(None, (12, 1)) and knows("11.0", (99, 0))
