"""What a comparison names, on recorded bills of materials: each fault, its step, and where nothing is to be done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.environment.compare import compare, specification
from fleetctl.environment.diff_plan import Side, commands, plan_steps
from fleetctl.environment.difference import Difference, Group, Step
from fleetctl.environment.localwheel import write_local_wheel
from fleetctl.environment.result import resulting
from fleetctl.environment.spec import EnvironmentSpec
from fleetctl.environment.view import View
from tests.environment.boms import Bom, distribution, extensions, reference, training, without

A = Side("ct129", "/root/ml-env")
B = Side("ct200", "/root/venv")
Change = Callable[[Bom], object]


def found(a: Bom, b: Bom, id: str, subject: str = "") -> Difference:
    fitting = [one for one in compare(a, b) if (one.id, one.subject) == (id, subject)]
    assert len(fitting) == 1, [(one.id, one.subject) for one in compare(a, b)]
    return fitting[0]


@pytest.mark.parametrize("bom", [reference(), training()])
def test_the_same_has_no_difference_and_nothing_to_do(bom: Bom) -> None:
    assert compare(bom, bom) == []
    assert commands(plan_steps([]), A, B) == []


@pytest.mark.parametrize(
    ("id", "subject", "words"),
    [
        ("missing-modules", "sglang", ("sglang 0.5.9 lacks", "dflash_info, dflash_utils, dflash_worker")),
        ("nested-copy", "sglang", ("sglang/sglang is a copy of the package inside itself",)),
        (
            "version",
            "flashinfer-python",
            ("0.6.3 has no mm_mxfp8", "requires flashinfer_python==0.6.8.post1"),
        ),
        ("version", "flashinfer-cubin", ("requires flashinfer_cubin==0.6.8.post1",)),
        ("abi-cuda", "torch", ("built for CUDA 12.8 (2.11.0+cu128)", "CUDA 13.0 (2.11.0+cu130)")),
        ("abi-library", "sglang-kernel", ("does not load", "libcudart.so.13", "sm100/common_ops.abi3.so")),
        ("missing", "soundfile", ("soundfile 0.13.1 is missing", "sglang 0.5.11 requires soundfile==0.13.1")),
        ("version", "xgrammar", ("0.1.10 has no StructuralTag", "requires xgrammar==0.1.32")),
        ("version-unmet", "", ("sglang 0.5.9 requires torch==2.9.1, 2.11.0+cu128 is here",)),
    ],
)
def test_one_run_names_every_fault(id: str, subject: str, words: Sequence[str]) -> None:
    difference = found(reference(), training(), id, subject)
    text = "\n".join([difference.what, *difference.evidence])
    assert all(word in text for word in words), text


def test_the_worst_is_told_first() -> None:
    ranks = [one.rank for one in compare(reference(), training())]
    assert ranks == sorted(ranks)
    assert compare(reference(), training())[0].id == "abi-cuda"
    assert {one.group for one in compare(reference(), training())} == set(Group)


def test_torchs_cuda_is_one_step_for_the_whole_stack() -> None:
    step = found(reference(), training(), "abi-cuda", "torch").step
    assert step == found(reference(), training(), "abi-library", "sglang-kernel").step
    assert step.do == "overlay"
    named = {
        "torch",
        "torchvision",
        "torchaudio",
        "triton",
        "sglang-kernel",
        "cuda-toolkit",
        "nvidia-nccl-cu13",
    }
    assert named <= set(step.distributions)
    assert {"nvidia-cublas-cu12", "nvidia-nccl-cu12"} <= set(step.remove)
    assert not {"nvidia-ml-py", "nvidia-cutlass-dsl"} & {*step.distributions, *step.remove}


def test_what_only_b_has_and_wants_the_other_cuda_cannot_stay() -> None:
    b = training()
    b["distributions"].append({**distribution(b, "wandb"), "name": "flash-attn", "version": "2.8"})
    b["extensions"].append({**extensions(b, "torchvision")[0], "distribution": "flash-attn", "path": "fa.so"})
    difference = found(reference(), b, "abi-cuda", "torch")
    assert "flash-attn" in difference.step.remove
    assert any("flash-attn wants CUDA 12" in line for line in difference.evidence)


def test_the_plan_is_one_command_that_leaves_b_as_it_is() -> None:
    steps = plan_steps(compare(reference(), training()))
    assert [step.do for step in steps] == ["overlay"]
    (line,) = commands(steps, A, B)
    assert line.startswith("fleetctl env overlay ct200:/root/venv venv --from ct129:/root/ml-env --dist ")
    assert "--dist torch " in line and line.endswith("--remove sglang/sglang")
    assert "cu12" not in line, "env overlay knows the toolkit's distributions itself"
    assert "wandb" not in line


def test_a_patched_environment_is_named_by_its_patch_sets() -> None:
    b = reference()
    b["made"] = {"origin": None, "overlays": [], "patches": [{"name": "engine-tree", "sha256": "0"}]}
    distribution(b, "sglang")["record"] = {"state": "ok", "sha256": "other", "why": ""}
    difference = found(reference(), b, "contents", "sglang")
    assert difference.what.endswith("; patch sets: engine-tree here, none there")
    assert found(reference(), b, "patch sets").what == "patch sets in it: engine-tree, in A: none"
    distribution(b, "sglang")["record"] = distribution(reference(), "sglang")["record"]
    assert [one.id for one in compare(b, b)] == []


def version(name: str, to: str) -> Change:
    return lambda bom: distribution(bom, name).update(
        version=to, record={"state": "ok", "sha256": to, "why": ""}
    )


def set_of(name: str, **what: object) -> Change:
    return lambda bom: distribution(bom, name).update(what)


def library(name: str, **what: object) -> Change:
    return lambda bom: [entry.update(what) for entry in extensions(bom, name)]


NOT_OK = {"state": "malformed", "sha256": None, "why": "line 3"}


@pytest.mark.parametrize(
    ("change", "id", "subject", "severity", "do"),
    [
        (lambda bom: bom["python"].update(tag="cp311"), "abi-python", "", "error", "rebuild"),
        (lambda bom: bom["python"].update(runs=False), "abi-interpreter", "", "error", "rebuild"),
        (lambda bom: bom["platform"].update(arch="aarch64"), "abi-arch", "", "error", "rebuild"),
        (version("torch", "2.12.1+cu130"), "abi-torch", "torch", "error", "overlay"),
        (lambda bom: bom["abi"].update(cxx11=False), "abi-cxx11", "torch", "error", "overlay"),
        (library("torchvision", cuda=12), "abi-major", "torchvision", "error", "overlay"),
        (library("soundfile", missing=["libFLAC.so.12"]), "abi-library", "soundfile", "error", "none"),
        (library("sglang-kernel", missing=["libnuma.so.1"]), "abi-library", "sglang-kernel", "error", "none"),
        (
            library("sglang-kernel", undefined=["_ZN3c1013MessageLoggerC1EPKciib"]),
            "abi-symbol",
            "sglang-kernel",
            "error",
            "overlay",
        ),
        (library("sglang-kernel", gpu=["sass:90a"]), "abi-gpu", "sglang-kernel", "warning", "overlay"),
        (library("numpy", tag="cp311"), "abi-tag", "numpy", "error", "overlay"),
        (library("numpy", glibc="2.40"), "abi-floor", "numpy", "error", "overlay"),
        (lambda bom: without(bom, "soundfile"), "missing", "soundfile", "error", "overlay"),
        (lambda bom: without(bom, "sglang"), "missing", "sglang", "warning", "overlay"),
        (version("xgrammar", "0.1.10"), "version", "xgrammar", "error", "overlay"),
        (version("tabulate", "0.8"), "version", "tabulate", "info", "overlay"),
        (version("flashinfer-cubin", "0.6.3"), "version-pair", "flashinfer-python", "error", "overlay"),
        (set_of("sglang", changed=["a.py"], changed_count=1), "files", "sglang", "warning", "overlay"),
        (set_of("sglang", missing=["a.py"], missing_count=1), "files", "sglang", "error", "overlay"),
        (set_of("sglang", record=NOT_OK), "record", "sglang", "warning", "overlay"),
        (set_of("sglang", editable="/root/sglang"), "editable", "sglang", "warning", "overlay"),
        (version("einops", "0.8.1"), "contents", "einops", "warning", "overlay"),
        (
            lambda bom: bom["twice"].append({"name": "sglang", "versions": ["0.5.9", "0.5.11"], "infos": []}),
            "twice",
            "sglang",
            "error",
            "overlay",
        ),
        (
            lambda bom: bom["unowned"]["packages"].append("sglang/sglang"),
            "nested-copy",
            "sglang",
            "error",
            "remove",
        ),
        (lambda bom: bom["unowned"]["files"].append("stray.py"), "unowned", "", "warning", "none"),
        (
            lambda bom: bom["problems"].append({"where": "x", "what": "loop"}),
            "problem",
            "",
            "warning",
            "none",
        ),
        (lambda bom: bom["platform"].update(glibc="2.41"), "glibc", "", "info", "none"),
        (lambda bom: bom.update(kind="conda"), "kind", "", "info", "none"),
    ],
)
def test_each_difference_alone(change: Change, id: str, subject: str, severity: str, do: str) -> None:
    b = reference()
    change(b)
    difference = found(reference(), b, id, subject)
    assert (difference.severity, difference.step.do) == (severity, do), difference
    assert any(one.group == difference.group for one in compare(reference(), b))


@pytest.mark.parametrize(
    ("codes", "lacks"),
    [
        (["sass:100a", "sass:103a", "sass:120a"], ""),
        (["sass:100a", "sass:120a"], "sm103a"),
        (["sass:100a", "sass:100", "sass:120a"], ""),  # SASS of 10.0 runs on 10.3
        (["ptx:90"], ""),  # the driver compiles older PTX
        (["ptx:90a"], "sm100a, sm103a, sm120a"),  # but none that is of one architecture
        ([], ""),  # not known is not a difference
    ],
)
def test_gpu_code_that_cards_of_a_would_not_find(codes: list[str], lacks: str) -> None:
    a, b = reference(), reference()
    for entry in extensions(a, "sglang-kernel"):
        entry["gpu"] = ["sass:100a", "sass:103a", "sass:120a"]
    library("sglang-kernel", gpu=codes)(b)
    told = [one.what for one in compare(a, b) if one.id == "abi-gpu"]
    assert bool(told) == bool(lacks)
    assert not lacks or f"no code for {lacks}," in told[0]


def test_a_host_too_old_for_what_a_has() -> None:
    a, b = reference(), training()
    library("xgrammar", glibc="2.38")(a)
    b["platform"]["glibc"] = "2.36"
    difference = found(a, b, "abi-glibc")
    assert difference.step.do == "rebuild"
    assert difference.evidence == ("xgrammar wants glibc 2.38",)
    assert found(a, b, "version", "xgrammar").step.do == "rebuild"
    (comment, overlay) = commands(plan_steps(compare(a, b)), A, B)
    assert comment.startswith("# build on ct200: xgrammar")
    assert "--dist xgrammar" not in overlay


def test_another_python_leaves_only_a_clone() -> None:
    b = training()
    b["python"]["tag"] = "cp311"
    lines = commands(plan_steps(compare(reference(), b)), A, B)
    assert lines[-1] == "fleetctl env clone ct129:/root/ml-env ct200:ml-env"
    assert len(lines) == 2


def pins(*requirements: str, python: str = "3.12", abi: str | None = None) -> Bom:
    return dict(
        specification(
            EnvironmentSpec(name="serving", python=python, requirements=list(requirements), abi=abi)
        )
    )


def test_against_a_specification() -> None:
    b = reference()
    everything = pins(*(f"{one['name']}=={one['version']}" for one in b["distributions"]))
    assert compare(everything, b) == []
    assert compare(pins("torch==2.11.0", "numpy==2.3.5"), b)[0].id == "extra", (
        "a pin without local part is met"
    )
    spec = pins("torch==2.11.0", "xgrammar==0.1.10", "vllm==0.11", python="3.11", abi="cp312-cu130-sm90")
    told = {(one.id, one.subject): one for one in compare(spec, b)}
    assert set(told) == {
        ("abi-python", ""),
        ("abi-tag", ""),
        ("missing", "vllm"),
        ("version", "xgrammar"),
        ("extra", ""),
    }
    assert "wants sm90" in told["abi-tag", ""].what
    assert told["missing", "vllm"].step == Step("install", ("vllm",), "envs/serving.yaml pins vllm==0.11")
    assert told["version", "xgrammar"].severity == "error"
    assert {one.step.do for one in compare(b, spec)} == {"none"}, "a specification is changed by hand"


def test_a_local_part_of_a_specification_is_one_of_its_distributions(tmp_path: Path) -> None:
    packed = write_local_wheel("standalone", tmp_path)
    pins = {"requirements": ["alpha==1.0"], "local": ["standalone"]}
    spec = specification(EnvironmentSpec.model_validate({"name": "serving", "python": "3.12", **pins}))
    own = spec["distributions"][1]
    assert packed.name == f"fleetctl_standalone-{own['version']}-py3-none-any.whl"
    b = reference()
    b["distributions"] = [{**b["distributions"][0], **entry} for entry in spec["distributions"]]
    b["extensions"] = []
    assert compare(spec, b) == []
    assert compare(b, spec) == []


def apply(steps: Sequence[Step], a: Bom, b: Bom) -> Bom:
    """What B is after the steps, as far as descriptions tell."""
    for step in steps:
        if step.do == "rebuild" and not step.distributions:
            return {**a, "hostname": b["hostname"], "path": b["path"]}
        view, take = View(b), step.distributions if step.do != "remove" else ()
        gone = [*step.remove, *(step.distributions if step.do == "remove" else ())]
        b = dict(resulting(view, View(a), take, gone, step.paths))
        if step.do == "rebuild":
            for entry in b["extensions"]:
                if entry["distribution"] in take:
                    entry.update(glibc=b["platform"]["glibc"], glibcxx=b["platform"]["glibcxx"])
    return b


def test_the_steps_leave_nothing_but_what_breaks_nothing() -> None:
    a, b = reference(), training()
    after = apply(plan_steps(compare(a, b)), a, b)
    assert [(one.id, one.group) for one in compare(a, after)] == [("extra", Group.FACT)]


NAMES = sorted({one["name"] for bom in (reference(), training()) for one in bom["distributions"]})


@st.composite
def boms(draw: st.DrawFn) -> Bom:
    """One of the two, with random damage."""
    bom = draw(st.sampled_from([reference, training]))()
    without(bom, *draw(st.sets(st.sampled_from(NAMES), max_size=4)))
    for entry in bom["distributions"]:
        if draw(st.integers(0, 19)) == 0:
            to = draw(st.sampled_from(["0.1", "99", "not a version", "2.11.0+cu128", "2.9.1+cu130"]))
            version(entry["name"], to)(bom)
    for entry in bom["extensions"]:
        if draw(st.integers(0, 14)) == 0:
            entry.update(
                cuda=draw(st.sampled_from([None, 12, 13])),
                gpu=draw(st.sampled_from([[], ["sass:90a"], ["sass:120a", "ptx:90"]])),
                glibc=draw(st.sampled_from([None, "2.17", "2.38"])),
                missing=draw(st.sampled_from([[], ["libcudart.so.13"], ["libnvrtc.so.12"]])),
                undefined=draw(st.sampled_from([[], ["_ZN3c105ErrorC2E"], ["xgrammar_new"]])),
                tag=draw(st.sampled_from([None, "abi3", "cp311", "cp312"])),
            )
    bom["platform"]["glibc"] = draw(st.sampled_from(["2.36", "2.39"]))
    bom["python"]["tag"] = draw(st.sampled_from(["cp312"] * 9 + ["cp311"]))
    bom["abi"]["cxx11"] = draw(st.sampled_from([True, False, None]))
    return bom


@settings(max_examples=60, deadline=None)
@given(boms())
def test_anything_compared_with_itself_is_the_same(bom: Bom) -> None:
    assert compare(bom, bom) == []


@settings(max_examples=100, deadline=None)
@given(boms())
def test_the_steps_leave_no_difference_of_the_abi(b: Bom) -> None:
    a = reference()
    differences = compare(a, b)
    assert all(one.step.why or one.step.do == "none" for one in differences)
    after = apply(plan_steps(differences), a, b)
    left = [one for one in compare(a, after) if one.group == Group.ABI and one.step.do != "none"]
    assert left == []


@pytest.mark.parametrize(("name", "to", "told"), [("sglang", "0.5.9", True), ("sglang", "0.5.12", False)])
def test_modules_are_told_of_an_older_engine_alone(name: str, to: str, told: bool) -> None:
    b = reference()
    version(name, to)(b)
    distribution(b, name)["modules"]["sglang.srt.speculative"] = ["eagle_worker"]
    assert any(one.id == "missing-modules" for one in compare(reference(), b)) == told
    assert any(one.id == "version" for one in compare(reference(), b)) != told
