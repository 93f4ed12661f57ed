"""The first cause of a failure, from its log; and nothing from the log of a healthy start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetctl.agent.rollout.signatures import Signatures, diagnose
from fleetctl.doctor.signatures import SIGNATURES, table

SHARED = Path(__file__).parents[3] / "shared"
LOGS = SHARED / "facts"

# What a log says (own words around the engine's), and the signature that names its first cause.
SAID = {
    "abi-cuda-major-12-needs-13": "ImportError: libcudart.so.13: cannot open shared object file",
    "abi-libnvrtc-12": "ImportError: libnvrtc.so.12: cannot open shared object file",
    "abi-cxx11": "ImportError: /e/ops.abi3.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSsb",
    "abi-torch-symbol": """
        [sgl_kernel] CRITICAL: Could not load any common_ops library!
        - ImportError: /e/sm100/common_ops.abi3.so: undefined symbol: _ZN3c1013MessageLoggerC1EPKciib
        - ModuleNotFoundError: No module named 'common_ops'""",
    "arch-flashinfer-sm12x": "RuntimeError: SM 12.x requires CUDA >= 12.9",
    "arch-flashinfer-sm75-message": "RuntimeError: FlashInfer requires GPUs with sm75 or higher",
    "arch-per-op-gap": """
        RMSNorm failed with error code no kernel image is available for execution on it
        Capture cuda graph failed""",
    "arch-ptxas": """
        triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error
        ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'""",
    "arch-triton-smem": """
        [2026-01-29 00:51:38 TP0] Scheduler hit an exception: Traceback (most recent call last):
        OutOfResources: out of resource: shared memory, Required: 106496, Hardware limit: 101376.
        [2026-01-29 00:51:38] SIGQUIT received. signum=None, frame=None.""",
    "cfg-fa3-on-sm120": "AssertionError: flash_attn at sgl-kernel is only supported on sm90 and above",
    "cfg-hybrid-radix": "ValueError: not compatible with radix cache when using --mamba-scheduler-strategy no",
    "cfg-unknown-algorithm": "serve: error: argument --speculative-algorithm: invalid choice: 'X'",
    "cfg-argument": "serve: error: unrecognized arguments: --no-such",
    "cfg-mamba-track": """
        File "/e/schedule_batch.py", line 2210, in set_mamba_track_indices_from_reqs
        TypeError: 'NoneType' object cannot be interpreted as an integer
        Received sigquit from a child process. It usually means the child failed.""",
    "gpu-out-of-memory": """
        RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
        Received sigquit from a child process.""",
    "model-config": """
        [x] Scheduler hit an exception: Traceback (most recent call last):
        AttributeError: 'Qwen3_5TextConfig' object has no attribute 'full_attention_interval'.
        [x] Received sigquit from a child process. It usually means the child failed.""",
    "pkg-soundfile": "ModuleNotFoundError: No module named 'soundfile'",
    "pkg-structural-tag": "ImportError: cannot import name 'StructuralTag' from 'xgrammar' (/e/xgrammar.py)",
    "pkg-cubin-version": "flashinfer-cubin version (0.6.8) does not match flashinfer version (0.6.10)",
    "svc-port-taken": "ERROR:    [Errno 98] error while attempting to bind: address already in use",
    "sys-out-of-memory": """
        Rank 0 scheduler is dead. Please check if there are relevant logs.
        systemd: x.service: A process of this unit has been killed by the OOM killer.""",
    "sys-libnuma": """
        ImportError: libnuma.so.1: cannot open shared object file: No such file or directory
        [sgl_kernel] CRITICAL: Could not load any common_ops library!""",
    "sys-disk-full": "OSError: [Errno 28] No space left on device",
    "svc-sigquit-child": "Received sigquit from a child process. It usually means the child failed.",
    "exception": """
        Traceback (most recent call last):
        KeyError: 'draft_of_mine'
        Received sigquit from a child process.""",
}

HEALTHY = """
    /site/sglang/launch_server.py:54: UserWarning: 'python -m sglang.launch_server' is still supported
    [x] Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit
    [x] server_args=ServerArgs(model_path='/m', grammar_backend='none', custom_sigquit_handler=None)
    [x] Failed to load generation config: /m does not appear to have a file named generation_config.json.
    [x] Ignore import error when loading sglang.srt.models.mimo: No module named 'torchcodec'
    [x] Ignore import error when loading x: Can not import FA3 in sgl_kernel. Please check your installation.
    [x] The server is fired up and ready to roll!"""


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize("cause", list(SAID))
def test_names_the_first_cause(cause: str) -> None:
    found = diagnose(lines(SAID[cause]), table())
    assert found is not None
    assert found["id"] == cause
    assert found["line"]


def test_a_healthy_start_says_nothing() -> None:
    assert diagnose(lines(HEALTHY), table()) is None


def test_ids_are_unique_and_each_fatal_one_has_a_remedy() -> None:
    ids = [signature.id for signature in SIGNATURES]
    assert len(ids) == len(set(ids))
    assert all(signature.fix for signature in SIGNATURES if signature.verdict == "fatal")
    assert all(re.compile(signature.pattern) for signature in SIGNATURES)


def test_a_pattern_that_is_no_regular_expression_never_matches() -> None:
    assert Signatures([{"id": "x", "pattern": "(", "verdict": "fatal"}]).fatal("(") is None


RECORDED_HEALTHY = [
    "logs/sglang-0.5.11-plain.log",
    "logs/sglang-0.5.11-plain-warm.log",
    "logs/sglang-0.5.11-plain-bad400.log",
    "logs/sglang-0.5.11-dflash.log",
    "logs/sglang-0.5.11-qwen35-dflash.log",
    "rtx-pro-6000/sglang-healthy-tp8.log",
]
RECORDED_FAILING = {
    "logs/sglang-0.5.11-port-taken.log": "svc-port-taken",
    "logs/sglang-0.5.11-ddtree-cli.log": "cfg-unknown-algorithm",
    "logs/sglang-0.5.11-hybrid.log": "model-config",
    "logs/sglang-0.5.11-hybrid-dflash.log": "model-config",
    "rtx-pro-6000/sglang-fails-shared-memory.log": "arch-triton-smem",
    "rtx-pro-6000/sglang-fails-in-service-tp4pp2.log": "arch-triton-smem",
}
recorded = pytest.mark.skipif(not LOGS.is_dir(), reason="the recorded logs are not on this machine")


@recorded
@pytest.mark.parametrize("name", RECORDED_HEALTHY)
def test_recorded_healthy_logs_say_nothing_fatal(name: str) -> None:
    known = Signatures(table())
    said = (LOGS / name).read_text().splitlines()
    assert [line for line in said if known.fatal(line)] == []
    assert known.diagnose(said) is None


@recorded
@pytest.mark.parametrize(("name", "cause"), RECORDED_FAILING.items())
def test_recorded_failures_name_the_first_cause(name: str, cause: str) -> None:
    found = diagnose((LOGS / name).read_text().splitlines(), table())
    assert found is not None
    assert found["id"] == cause
