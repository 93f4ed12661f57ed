"""Real wheels: what their libraries want, as recorded, and read anew where ``FLEETCTL_WHEELS`` names their folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fleetctl.abi.cuda import majors
from fleetctl.abi.tag import abi_tag, compare
from tests.abi.record import FACTS, torch_facts, wheel_facts

WHEELS = Path(os.environ.get("FLEETCTL_WHEELS", ""))


def recorded(name: str) -> dict[str, Any]:
    return dict(json.loads((FACTS / f"{name}.json").read_text()))


def library(name: str, path: str) -> dict[str, Any]:
    return next(found for found in recorded(name)["libraries"] if found["path"] == path)


@pytest.mark.parametrize("name", ["sglang_kernel", "xgrammar", "flashinfer_python"])
def test_a_wheel_reads_as_it_was_recorded(name: str) -> None:
    """Where the wheels are given; elsewhere the record must at least be of a wheel that was read whole."""
    facts = recorded(name)
    if os.environ.get("FLEETCTL_WHEELS"):
        assert wheel_facts(WHEELS / facts["file"]) == facts
    else:
        assert all(found["machine"] == "x86_64" and found["undefined"] for found in facts["libraries"])


def test_torchs_own_libraries_read_as_they_were_recorded() -> None:
    now, facts = torch_facts(), recorded("torch")
    if now["torch"] == facts["torch"]:
        assert now == facts
    assert {found["path"] for found in now["libraries"]} >= {
        "torch/lib/libc10.so",
        "torch/lib/libtorch_cpu.so",
    }


def test_sglang_kernel_says_why_it_cannot_load_beside_torch_for_cuda_12() -> None:
    kernel = library("sglang_kernel", "sgl_kernel/sm100/common_ops.abi3.so")
    wants = {"libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libnvrtc.so.13", "libnuma.so.1"}
    assert wants <= set(kernel["needed"])
    assert majors(kernel["needed"]) == {13}
    needed, there = abi_tag(cuda="cu130", cxx11=kernel["cxx11"]), abi_tag("cp312", "2.11.0+cu128", cxx11=True)
    assert [(found.part, found.breaks) for found in compare(needed, there)] == [("cuda", True)]


def test_sglang_kernel_holds_machine_code_for_sm120_and_none_for_sm121() -> None:
    gpu = library("sglang_kernel", "sgl_kernel/sm100/common_ops.abi3.so")["gpu"]
    assert "sass:120a" in gpu
    assert not [code for code in gpu if "121" in code or "f" in code or code.startswith("ptx")]


def test_sglang_kernel_wants_names_that_came_with_torch_2_11() -> None:
    """Which any other torch lacks, so that it shows as missing symbols."""
    sample = library("sglang_kernel", "sgl_kernel/sm100/common_ops.abi3.so")["sample"]
    assert "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb" in sample
    assert "_ZN3c1013MessageLoggerC1ENS_14SourceLocationEib" in sample


def test_only_sglang_kernels_attention_lacks_sm120() -> None:
    lacking = {
        found["path"]
        for found in recorded("sglang_kernel")["libraries"]
        if found["gpu"] and not any(code.startswith("sass:120") for code in found["gpu"])
    }
    assert {"sgl_kernel/flash_ops.abi3.so", "sgl_kernel/flashmla_ops.abi3.so"} <= lacking
    assert not [path for path in lacking if path.endswith(("common_ops.abi3.so", "spatial_ops.abi3.so"))]


def test_flashinfer_is_compiled_on_the_host_and_brings_no_library() -> None:
    assert recorded("flashinfer_python")["libraries"] == []


def test_xgrammar_needs_neither_cuda_nor_torch() -> None:
    (found,) = recorded("xgrammar")["libraries"]
    assert found["cuda"] == []
    assert not [name for name in found["needed"] if "torch" in name or "cu" in name]
    assert found["requires"]["GLIBC"] == "2.17"


def test_records_stay_small() -> None:
    assert sum(path.stat().st_size for path in FACTS.glob("*.json")) < 60_000
