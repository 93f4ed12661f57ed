"""Which overlays are refused before anything is touched, and what the others come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.environment.compare import compare
from fleetctl.environment.diff_plan import plan_steps
from fleetctl.environment.overlay import OPTION, OverlayPlan, plan_overlay
from fleetctl.environment.overlay_act import derive_arguments, derived_path
from fleetctl.errors import Exit, FleetError
from tests.environment.boms import Bom, distribution, extensions, reference, training, without

STACK = ["torch", "torchvision", "torchaudio", "triton", "nvidia-*", "cuda-*", "sglang-kernel"]
ENGINE = [
    "sglang",
    "xgrammar",
    "flashinfer-python",
    "flashinfer-cubin",
    "soundfile",
    "transformers",
    "cuda-tile",
]
Change = Callable[[Bom, Bom], Any]


def reasons(base: Bom, source: Bom, names: Sequence[str], remove: Sequence[str] = ()) -> str:
    with pytest.raises(FleetError) as caught:
        plan_overlay(base, source, names, remove)
    error = caught.value
    assert error.exit == Exit.PREFLIGHT
    assert error.where and error.fix, error
    return "\n".join([error.what, error.fix, *error.evidence])


def serving() -> OverlayPlan:
    """The training environment with the reference's stack and engine."""
    return plan_overlay(training(), reference(), [*STACK, *ENGINE], ["sglang/sglang"])


def test_the_whole_stack_and_the_engine_come_together() -> None:
    plan = serving()
    assert plan.distributions["torch"] == "2.11.0+cu130"
    assert plan.distributions["wandb"] == "0.23.0", "what nobody named stays"
    assert not [name for name in plan.distributions if name.endswith("-cu12")]
    assert "nvidia-nccl-cu12" in plan.removed and plan.paths == ("sglang/sglang",)
    assert plan.result["abi"]["torch"] == "2.11.0+cu130" and set(plan.result["abi"]["cuda"]) == {"13"}
    assert not [one for one in plan.result["extensions"] if one["missing"]]
    replaced = {one.name: one.replaces for one in plan.taken}
    assert (replaced["torch"], replaced["soundfile"]) == ("2.11.0+cu128", None)
    assert "click" not in replaced, "what is the same already is left alone"
    assert plan.warnings == ()


def test_the_steps_of_a_comparison_are_an_overlay_that_is_not_refused() -> None:
    (step,) = plan_steps(compare(reference(), training()))
    plan = plan_overlay(training(), reference(), step.distributions, [*step.remove, *step.paths])
    assert {one.group.name for one in compare(reference(), plan.result)} == {"FACT"}


def test_where_all_is_there_already_nothing_is_to_be_done() -> None:
    plan = plan_overlay(reference(), reference(), ["torch", "nvidia-*", "sglang"])
    assert plan.is_there and plan.distributions["torch"] == "2.11.0+cu130"


def test_the_digest_is_of_what_goes_in() -> None:
    assert serving().digest == serving().digest
    assert len(serving().digest) == 12
    other = plan_overlay(training(), reference(), [*STACK, *ENGINE], ["sglang/sglang", "wandb"])
    assert other.digest != serving().digest
    moved = training()
    moved["path"], moved["hostname"] = "/srv/venv", "elsewhere"
    same = plan_overlay(moved, reference(), [*STACK, *ENGINE], ["sglang/sglang"])
    assert same.digest == serving().digest, "neither host nor path has a say"


def both(change: Callable[[Bom], Any], names: Sequence[str] = ("base", "source")) -> Change:
    return lambda base, source: [change({"base": base, "source": source}[name]) for name in names]


def of_source(change: Callable[[Bom], Any]) -> Change:
    return both(change, ["source"])


def of_base(change: Callable[[Bom], Any]) -> Change:
    return both(change, ["base"])


def entry(name: str, **what: Any) -> Callable[[Bom], Any]:
    return lambda bom: distribution(bom, name).update(what)


def library(name: str, **what: Any) -> Callable[[Bom], Any]:
    return lambda bom: [one.update(what) for one in extensions(bom, name)]


def record(state: str) -> dict[str, Any]:
    return {"state": state, "sha256": None, "why": "line 3 has no path"}


TWICE = {"name": "soundfile", "versions": ["0.12", "0.13.1"], "infos": ["a", "b"]}


@pytest.mark.parametrize(
    ("change", "names", "remove", "words"),
    [
        (None, ["soundfil"], [], ["soundfil is not installed in ct129", "did you mean soundfile?"]),
        (None, ["vllm-*"], [], ["vllm-* is not installed"]),
        (None, ["soundfile"], ["sound"], ["no sound to remove", "ct200:/root/venv"]),
        (
            None,
            ["sglang"],
            [],
            ["sglang/sglang is a copy of the package inside itself", "--remove sglang/sglang"],
        ),
        (
            None,
            ["torch"],
            [],
            ["torchvision wants CUDA 12", "torch (2.11.0+cu130) is of CUDA 13", "--dist torchvision"],
        ),
        (None, ["nvidia-*"], [], ["of CUDA 13 would stand beside torch 2.11.0+cu128", "--dist torch"]),
        (None, ["torchvision"], [], ["torchvision wants CUDA 13", "torch (2.11.0+cu128) is of CUDA 12"]),
        (
            None,
            ["flashinfer-python", "nvidia-cutlass-dsl", "cuda-tile"],
            [],
            ["0.6.8.post1 would stand beside flashinfer-cubin 0.6.3", "--dist flashinfer-cubin"],
        ),
        (
            None,
            ["sglang"],
            ["sglang/sglang"],
            ["requires xgrammar==0.1.32, 0.1.10 would be there", "--dist xgrammar"],
        ),
        (
            of_source(entry("soundfile", record=record("missing"))),
            ["soundfile"],
            [],
            ["RECORD of soundfile 0.13.1 is missing", "which files must come"],
        ),
        (
            of_source(entry("soundfile", record=record("malformed"))),
            ["soundfile"],
            [],
            ["is malformed", "line 3 has no path"],
        ),
        (
            of_source(entry("soundfile", outside=["../../../../etc/x"])),
            ["soundfile"],
            [],
            ["outside the environment", "../etc/x"],
        ),
        (
            of_source(entry("soundfile", changed=["soundfile.py"])),
            ["soundfile"],
            [],
            ["are changed in ct129", "fleetctl patch new"],
        ),
        (
            of_source(entry("soundfile", missing=["soundfile.py"])),
            ["soundfile"],
            [],
            ["are missing in ct129"],
        ),
        (
            of_source(entry("soundfile", editable="/root/sf")),
            ["soundfile"],
            [],
            ["editable install of /root/sf"],
        ),
        (
            of_source(lambda bom: bom["twice"].append(TWICE)),
            ["soundfile"],
            [],
            ["soundfile has two dist-infos"],
        ),
        (
            of_base(entry("wandb", record=record("missing"))),
            ["soundfile"],
            ["wandb"],
            ["which files must go"],
        ),
        (
            of_source(lambda bom: bom["unowned"]["packages"].append("soundfile/soundfile")),
            ["soundfile"],
            [],
            ["remove soundfile/soundfile from /root/ml-env first"],
        ),
        (
            of_source(library("soundfile", tag="cp311")),
            ["soundfile"],
            [],
            ["soundfile is built for cp311, the base's Python is cp312"],
        ),
        (
            of_base(lambda bom: bom["python"].update(runs=False, why="a link to nowhere")),
            ["soundfile"],
            [],
            ["does not run: a link to nowhere", "skeleton"],
        ),
        (
            of_source(library("soundfile", glibc="2.41")),
            ["soundfile"],
            [],
            ["wants glibc 2.41, the base's host has 2.39"],
        ),
        (of_source(library("soundfile", glibcxx="3.4.40")), ["soundfile"], [], ["wants glibcxx 3.4.40"]),
        (
            of_source(library("soundfile", machine="aarch64")),
            ["soundfile"],
            [],
            ["is built for aarch64, the base's host is x86_64"],
        ),
    ],
)
def test_what_is_refused(
    change: Change | None, names: Sequence[str], remove: Sequence[str], words: Sequence[str]
) -> None:
    base, source = training(), reference()
    if change:
        change(base, source)
    said = reasons(base, source, names, remove)
    assert all(word in said for word in words), said


def test_a_pair_within_torchs_stack_that_does_not_match() -> None:
    base, source = training(), reference()
    distribution(source, "triton").update(version="3.5.0", record={"state": "ok", "sha256": "t", "why": ""})
    said = reasons(reference(), source, ["triton"])
    assert "torch 2.11.0+cu130 requires triton==3.6.0, 3.5.0 would be there" in said
    distribution(source, "torch")["version"] = "2.10.0+cu130"
    said = reasons(base, source, STACK)
    assert "torchvision 0.26.0+cu130 requires torch==2.11.0, 2.10.0+cu130 would be there" not in said, (
        "it is so in the source, which is known to work"
    )


def test_a_library_that_is_given_by_a_distribution_left_behind() -> None:
    source = reference()
    codec = {**extensions(source, "soundfile")[0], "path": "flac.so", "soname": "libFLAC.so.12"}
    source["extensions"].append({**codec, "distribution": "tabulate"})
    distribution(source, "tabulate").update(version="1.0", record={"state": "ok", "sha256": "t", "why": ""})
    library("soundfile", needed=["libFLAC.so.12"])(source)
    for one in extensions(source, "soundfile"):
        one["path"] = "lib/python3.12/site-packages/_soundfile.so"
    said = reasons(training(), source, ["soundfile"])
    assert "soundfile needs libFLAC.so.12, which nothing would give" in said
    assert "--dist tabulate" in said
    assert plan_overlay(training(), source, ["soundfile", "tabulate"]).taken


def test_all_reasons_come_at_once() -> None:
    with pytest.raises(FleetError) as caught:
        plan_overlay(training(), reference(), ["torch", "sglang"])
    assert caught.value.what.endswith("reasons against this overlay")
    assert len(caught.value.evidence) > 4


@pytest.mark.parametrize("names", [["torch", "sglang-kernel"], ["sglang"], ["torchvision"], ["xgrammar"]])
def test_the_fix_is_one_line_that_leaves_no_reason(names: list[str]) -> None:
    with pytest.raises(FleetError) as caught:
        plan_overlay(training(), reference(), names)
    assert caught.value.fix.startswith("add --")
    options = OPTION.findall(caught.value.fix)
    more = [name for option, name in options if option == "dist"]
    gone = [name for option, name in options if option == "remove"]
    assert plan_overlay(training(), reference(), [*names, *more], gone).taken


def test_pure_code_of_another_python_may_come() -> None:
    source = reference()
    source["python"]["tag"] = "cp311"
    names = ["flashinfer-cubin", "flashinfer-python", "cuda-tile", "nvidia-cutlass-dsl"]
    assert len(plan_overlay(without(training(), "sglang"), source, names).taken) == 4


def test_an_extension_of_the_stable_abi_may_come() -> None:
    source = reference()
    library("soundfile", tag="abi3")(source)
    assert [one.name for one in plan_overlay(training(), source, ["soundfile"]).taken] == ["soundfile"]


def test_ranges_that_do_not_hold_any_more_are_warnings() -> None:
    base = without(training(), "sglang")
    distribution(base, "accelerate")["requires"] = ["transformers<5"]
    plan = plan_overlay(base, reference(), ["transformers"])
    assert "accelerate 1.12.0 requires transformers<5, 5.6.0 will be there" in plan.warnings


def test_a_library_that_the_source_lacks_too_is_a_warning() -> None:
    source = reference()
    library("soundfile", missing=["libFLAC.so.12"])(source)
    plan = plan_overlay(training(), source, ["soundfile"])
    assert "soundfile needs libFLAC.so.12, which ct129:/root/ml-env does not give either" in plan.warnings


def test_the_arguments_of_the_agents_call() -> None:
    plan = plan_overlay(training(), reference(), ["soundfile"])
    arguments = derive_arguments(plan, "serving", "ct200")
    assert derived_path(plan, "serving") == f"/var/lib/fleetctl/envs/serving-{plan.digest}"
    assert (arguments["name"], arguments["digest"], arguments["base"]) == (
        "serving",
        plan.digest,
        "/root/venv",
    )
    assert [(one["distribution"], one["from"]) for one in arguments["overlays"]] == [
        ("soundfile", "/root/ml-env")
    ]
    assert arguments["origin"] == {"host": "ct200", "path": "/root/venv", "digest": training()["digest"]}
    assert "removes" not in arguments
    parts = derive_arguments(plan, "serving", "ct200", {"soundfile": "/var/lib/fleetctl/parts/x"})
    assert parts["overlays"][0]["from"] == "/var/lib/fleetctl/parts/x"
    assert derive_arguments(serving(), "serving", "ct200")["removes"]["paths"] == ["sglang/sglang"]


NAMES = sorted(one["name"] for one in reference()["distributions"])


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(NAMES), min_size=1), st.sampled_from([True, False]))
def test_what_is_not_refused_has_one_cuda_and_lacks_no_library(names: set[str], clean: bool) -> None:
    base = training() if clean else without(training(), "sglang-kernel")
    try:
        plan = plan_overlay(base, reference(), sorted(names), ["sglang/sglang"])
    except FleetError as error:
        assert error.exit == Exit.PREFLIGHT and error.fix
        return
    assert {one.name for one in plan.taken} <= names
    before = {one["path"] for one in base["extensions"] if one["missing"]}
    assert {one["path"] for one in plan.result["extensions"] if one["missing"]} <= before
    versions = plan.distributions
    assert versions["flashinfer-python"] == versions["flashinfer-cubin"]
    if "torch" in {one.name for one in plan.taken}:
        assert set(plan.result["abi"]["cuda"]) == {"13"}
