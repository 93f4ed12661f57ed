"""The DDTree patch set on sglang 0.5.11 as it was published: applied, looked at, taken out again."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

import pytest

from fleetctl.doctor.rules.cfg_trees import PARTS
from fleetctl.patches.hunks import sha256
from fleetctl.patches.patchset import PatchSet, load
from fleetctl.patches.plan import PatchWrites, plan, unmade
from fleetctl.patches.state import State, judge
from fleetctl.patches.trees import Wheel
from tests.patches_sglang.modules import module

REPOSITORY = Path(__file__).parents[2]
NAME = "ddtree-sglang-0.5.11"


@pytest.fixture(scope="module")
def ddtree() -> PatchSet:
    return load(REPOSITORY, NAME)


@pytest.fixture(scope="module")
def before(sglang_wheel: Path, ddtree: PatchSet) -> dict[str, bytes | None]:
    return Wheel(sglang_wheel).contents([change.path for change in ddtree.changes])


@pytest.fixture(scope="module")
def planned(sglang_wheel: Path, ddtree: PatchSet, before: dict[str, bytes | None]) -> PatchWrites:
    (writes,) = plan([ddtree], Wheel(sglang_wheel).distributions(["sglang"]), before, [ddtree], "the wheel")
    return writes


def digests(contents: dict[str, bytes | None]) -> dict[str, str | None]:
    return {path: None if held is None else sha256(held) for path, held in contents.items()}


def test_it_applies_to_the_published_wheel_and_is_patched_then(
    ddtree: PatchSet, before: dict[str, bytes | None], planned: PatchWrites
) -> None:
    assert judge(ddtree, "0.5.11", digests(before)).state == State.PRISTINE
    after = {**before, **{write.path: write.content for write in planned.writes}}
    assert judge(ddtree, "0.5.11", digests(after)).state == State.PATCHED
    assert judge(ddtree, "0.5.12", digests(before)).state == State.OTHER_VERSION


def test_every_file_it_makes_is_python_3_10(planned: PatchWrites) -> None:
    for write in planned.writes:
        assert write.content is not None
        ast.parse(write.content, write.path, feature_version=(3, 10))


def test_taken_out_again_every_file_is_as_published(
    ddtree: PatchSet, before: dict[str, bytes | None], planned: PatchWrites
) -> None:
    found = {write.path: write.content for write in planned.writes if write.content is not None}
    back = {write.path: write.content for write in unmade(ddtree, found).writes}
    assert back == before


def test_hunks_stay_small_and_no_file_of_the_engine_is_carried_whole(
    ddtree: PatchSet, before: dict[str, bytes | None]
) -> None:
    for change in ddtree.changes:
        if change.before is None:
            assert before[change.path] is None
        else:
            changed = sum(
                len(set(hunk.after) - set(hunk.before)) + len(set(hunk.before) - set(hunk.after))
                for hunk in change.hunks
            )
            assert changed < 60, change.path


def test_every_flag_is_a_field_of_the_servers_arguments_with_the_same_default(planned: PatchWrites) -> None:
    """``ServerArgs.from_cli_args`` reads what its fields name, and nothing else."""
    written = next(write.content for write in planned.writes if write.path.endswith("srt/server_args.py"))
    assert written is not None
    node = next(
        one for one in ast.parse(written).body if isinstance(one, ast.ClassDef) and one.name == "ServerArgs"
    )
    fields = {
        one.target.id: ast.literal_eval(one.value)
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None
        if one.target.id.startswith("speculative_ddtree_")
    }
    parser = argparse.ArgumentParser()
    module("ddtree_args").add_cli_args(parser)
    assert fields == vars(parser.parse_args([]))


def test_doctor_knows_the_modules_that_it_brings(ddtree: PatchSet) -> None:
    made = {Path(change.path).stem for change in ddtree.changes if change.before is None}
    assert made == PARTS
