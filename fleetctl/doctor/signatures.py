"""What engines and systemd log when something is wrong, and what to do: data, matched by the agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["fatal", "harmless"]


@dataclass(frozen=True)
class Signature:
    """A pattern that, found in a line of the log, says ``reason``.

    ``consequence``: the line only reports that something else failed; the cause is looked for around it.
    """

    id: str
    pattern: str
    reason: str
    fix: str
    verdict: Verdict = "fatal"
    consequence: bool = False

    @property
    def family(self) -> str:
        """ABI, ARCH, CFG, GPU, MODEL, PKG, SVC or SYS."""
        return self.id.split("-", 1)[0].upper()

    def to_dict(self) -> dict[str, Any]:
        """As plans carry it to the host."""
        plain: dict[str, Any] = {
            "id": self.id,
            "pattern": self.pattern,
            "verdict": self.verdict,
            "reason": self.reason,
            "fix": self.fix,
        }
        return {**plain, "consequence": True} if self.consequence else plain


ABI = [
    Signature(
        "abi-cuda-major-12-needs-13",
        r"lib(?:cudart|cublas|cublasLt|nvrtc)\.so\.13: cannot open shared object file",
        "an extension built for CUDA 13 is in an environment whose torch brings CUDA 12",
        "take torch, triton, torchvision, nvidia-* and the kernel package from one CUDA tag (cu130)",
    ),
    Signature(
        "abi-libnvrtc-12",
        r"libnvrtc\.so\.12: cannot open shared object file",
        "libnvrtc.so.12 is in no place that the loader searches",
        "install nvidia-cuda-nvrtc-cu12 in this environment; import torch before the kernel package",
    ),
    Signature(
        "abi-cxx11",
        r"undefined symbol: _Z\w*(?:RKSs|RKSsb|ESs|Ss)[a-z]?$",
        "a package was built with the old C++ string ABI, torch here uses the C++11 ABI",
        "install a build of that package with the C++11 ABI of this torch",
    ),
    Signature(
        "abi-torch-symbol",
        r"undefined symbol: _ZNK?(?:3c10|5torch|2at)",
        "a package was built against another torch version than the one installed",
        "install the torch that the package was built with, or the package's build for this torch",
    ),
    Signature(
        "abi-undefined-symbol",
        r"undefined symbol: ",
        "a compiled extension does not fit the libraries it is loaded with",
        "install both from builds of one version and one CUDA tag",
    ),
    Signature(
        "abi-kernel-library",
        r"\[sgl_kernel\] CRITICAL: Could not load any common_ops library",
        "the kernel package could not be loaded",
        "the import errors below that line say why",
        consequence=True,
    ),
]

ARCH = [
    Signature(
        "arch-flashinfer-sm12x",
        r"SM 12\.x requires CUDA >= 12\.9",
        "the CUDA toolkit is older than FlashInfer wants for SM 12.x",
        "CUDA toolkit 12.9 or later, or --attention-backend triton",
    ),
    Signature(
        "arch-flashinfer-sm75-message",
        r"FlashInfer requires GPUs with sm75 or higher",
        "FlashInfer refuses the card; on SM 12.x that means a CUDA toolkit before 12.9, not too old a card",
        "CUDA toolkit 12.9 or later as CUDA_HOME, or --attention-backend triton --sampling-backend pytorch",
    ),
    Signature(
        "arch-per-op-gap",
        r"no kernel image is available for execution",
        "a library holds no code for this card's architecture",
        "a build of the kernel package with that architecture, or only cards that it has code for",
    ),
    Signature(
        "arch-ptxas",
        r"ptxas fatal\s*: Value 'sm_\w+' is not defined",
        "the ptxas that Triton brings does not know this card",
        "triton 3.6.0 or later, or TRITON_PTXAS_PATH to the ptxas of CUDA 13",
    ),
    Signature(
        "arch-triton-smem",
        r"out of resource: shared memory, Required: \d+, Hardware limit: \d+",
        "a Triton kernel asks for more shared memory than a block has on this card (99 KiB on SM 12.x)",
        "sglang 0.5.11 or later, or a patch set for the kernel named in the traceback",
    ),
    Signature(
        "arch-cuda-graph",
        r"Capture cuda graph failed",
        "the CUDA graph could not be captured",
        "the error above that line is the cause; --disable-cuda-graph only hides it",
        consequence=True,
    ),
]

CFG = [
    Signature(
        "cfg-fa3-on-sm120",
        r"flash_attn at sgl-kernel is only supported on sm90",
        "the FlashAttention 3 backend was chosen; it is for Hopper",
        "--attention-backend triton (or flashinfer with a CUDA toolkit of 12.9 or later)",
    ),
    Signature(
        "cfg-hybrid-radix",
        r"not compatible with radix cache when using --mamba-scheduler-strategy",
        "a hybrid model, speculation and the radix cache without extra buffers do not go together",
        "--disable-radix-cache, or --mamba-scheduler-strategy extra_buffer",
    ),
    Signature(
        "cfg-unknown-algorithm",
        r"error: argument --speculative-algorithm: invalid choice",
        "this engine does not know the speculative algorithm",
        "an environment with the patch set that brings it, or one of the algorithms that the line names",
    ),
    Signature(
        "cfg-argument",
        r"error: (?:unrecognized arguments|argument --?[\w/-]+: )",
        "the engine refused its arguments",
        "correct the service's arguments for this engine's version",
    ),
    Signature(
        "cfg-mamba-track",
        r"in set_mamba_track_indices_from_reqs",
        "a defect of this sglang with speculative decoding on hybrid models",
        "a later sglang that has the fix; no speculation until then",
    ),
]

GPU = [
    Signature(
        "gpu-out-of-memory",
        r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory"
        r"|Not enough memory\. Please try to (?:in|de)crease --mem-fraction-static",
        "the GPU's memory does not suffice",
        "see who else uses the GPU; then another --mem-fraction-static, a shorter context, or more GPUs",
    ),
    Signature(
        "gpu-fault",
        r"CUDA error: (?:an illegal memory access|unspecified launch failure|device-side assert)"
        r"|uncorrectable ECC error"
        r"|GPU is lost|fallen off the bus",
        "the GPU, or a kernel on it, crashed",
        "see `nvidia-smi` and `dmesg` for Xid errors; reset the GPU or move the service to another one",
    ),
    Signature(
        "gpu-collective-timeout",
        r"Watchdog caught collective operation timeout|ncclUnhandledCudaError|NCCL error in",
        "GPUs of the service do not reach each other",
        "try NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce; then look at IOMMU and ACS",
    ),
]

MODEL = [
    Signature(
        "model-config",
        r"has no attribute 'full_attention_interval'",
        "the model's configuration has no full_attention_interval for this sglang with this transformers",
        "the transformers version that this sglang pins, or a config.json with that field",
    ),
    Signature(
        "model-missing",
        r"does not appear to have a file named config\.json"
        r"|is not a valid model identifier|Repository Not Found",
        "the model is not where the service looks for it",
        "correct the model's path, or copy the model to the host",
    ),
]

PKG = [
    Signature(
        "pkg-soundfile",
        r"No module named '?soundfile|sndfile library not found",
        "soundfile is imported at start and missing",
        "add soundfile (with its libsndfile) to the environment",
    ),
    Signature(
        "pkg-structural-tag",
        r"cannot import name '?StructuralTag",
        "xgrammar is older than this sglang needs",
        "xgrammar==0.1.32, or --grammar-backend none",
    ),
    Signature(
        "pkg-cubin-version",
        r"flashinfer-cubin version .* does not match flashinfer version",
        "flashinfer-python and flashinfer-cubin are of different versions",
        "the same version of both",
    ),
]

SVC = [
    Signature(
        "svc-port-taken",
        r"\[Errno 98\]|[Aa]ddress already in use",
        "the port is taken by another process",
        "find its owner (`ss -ltnp`), stop it, or give the slot another port",
    ),
    Signature(
        "svc-scheduler-exception",
        r"Scheduler hit an exception",
        "the scheduler process crashed",
        "the traceback below that line says why",
        consequence=True,
    ),
    Signature(
        "svc-sigquit-child",
        r"Received sigquit from a child process|SIGQUIT received\.",
        "a child process of the engine failed",
        "the first error above that line is the cause",
        consequence=True,
    ),
    Signature(
        "svc-scheduler-dead",
        r"scheduler is dead\. Please check",
        "the scheduler process is dead",
        "see the lines around it and `journalctl -k` for the out-of-memory killer",
        consequence=True,
    ),
]

SYS = [
    Signature(
        "sys-out-of-memory",
        r"Out of memory: Killed process|killed by the OOM killer|result 'oom-kill'",
        "the kernel's out-of-memory killer ended a process: host memory, not the GPU's",
        "more host memory or less of it in use (parallel weight loading, copies in /dev/shm)",
    ),
    Signature(
        "sys-libnuma",
        r"libnuma\.so\.1: cannot open shared object file",
        "the system library libnuma is missing",
        "apt-get install libnuma1",
    ),
    Signature(
        "sys-disk-full",
        r"No space left on device",
        "a disk is full",
        "free some space: caches under ~/.cache and ~/.triton, old environments (`fleetctl env list`)",
    ),
]

HARMLESS = [
    Signature(
        "ok-import", r"Ignore import error when loading", "an optional model is skipped", "", "harmless"
    ),
    Signature("ok-warning", r"(?:Deprecation|Future|User)Warning: ", "a library's warning", "", "harmless"),
    Signature("ok-arguments", r"server_args=ServerArgs\(", "the engine's arguments", "", "harmless"),
    Signature("ok-rlimit", r"Fail(?:ed)? to set RLIMIT", "a limit stays as it was", "", "harmless"),
    Signature(
        "ok-generation-config", r"Failed to load generation config", "defaults are used", "", "harmless"
    ),
]

SIGNATURES: list[Signature] = [*ABI, *ARCH, *CFG, *GPU, *MODEL, *PKG, *SVC, *SYS, *HARMLESS]


def table() -> list[dict[str, Any]]:
    """All signatures as a plan's ``signatures``."""
    return [signature.to_dict() for signature in SIGNATURES]
