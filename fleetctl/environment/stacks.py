"""Which distributions belong together, which need what of another, and which library is whose: facts as data.

Sources are the distributions' own metadata (``Requires-Dist``), loaders and code, as named beside each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from packaging.version import InvalidVersion, Version

# Built from one CUDA toolkit and against one torch, so moved together. torch 2.11.0 requires cuda-toolkit,
# cuda-bindings, nvidia-*-cu13 and triton by exact version; torchvision 0.26.0 requires torch==2.11.0; torchaudio,
# torchcodec and sglang-kernel name no torch in their metadata, but their libraries need libtorch and libcudart.
_STACK = (
    "torch",
    "torchvision",
    "torchaudio",
    "torchcodec",
    "triton",
    "pytorch-triton",
    "nvidia-*",
    "cuda-toolkit",
    "cuda-bindings",
    "cuda-python",
    "sgl-kernel",
    "sglang-kernel",
)
# nvidia-* that no toolkit's version is in: NVML's bindings, and compilers written in Python.
_NOT_STACK = ("nvidia-ml-py*", "nvidia-cutlass-dsl*", "nvidia-cudnn-frontend")

# The system's package of a library that no wheel brings (sgl_kernel's common_ops needs libnuma).
SYSTEM_PACKAGES = {"libnuma.so.1": "libnuma1", "libsndfile.so.1": "libsndfile1", "libgomp.so.1": "libgomp1"}

# What installs the others: nothing of an environment imports it while it serves.
INSTALLERS = frozenset(["pip", "setuptools", "wheel", "uv"])

_NVIDIA = re.compile(
    r"^lib(cudart|cudnn|cublas|cufft|curand|cusparse|cusolver|cupti|cufile|nccl|nvrtc|nvJitLink|nvToolsExt|nvshmem)"
)
_TORCH_LIBRARY = re.compile(r"^lib(torch|c10|shm|caffe2)")
_TORCH_SYMBOL = re.compile(
    r"^(_ZN?K?R?K?(2at|3c10|5torch)|_ZT[IVS]N(2at|3c10|5torch)|aoti_torch_|THP)|N(3c10|2at)\d"
)
_CUDA_TAG = re.compile(r"^cu(\d{2,3})$")
_CUDA_SUFFIX = re.compile(r"-cu(\d{2})$")


@dataclass(frozen=True)
class Pair:
    """Two distributions of which one checks the other's version when it is imported."""

    one: str
    other: str
    source: str


# Requirements are read from the environment's own metadata; these are pairs that no metadata names.
PAIRS = (
    Pair("flashinfer-python", "flashinfer-cubin", "flashinfer compares both versions when it is imported"),
    Pair(
        "flashinfer-python", "flashinfer-jit-cache", "flashinfer compares both versions when it is imported"
    ),
)

# The torch that a release of the kernel package was built with: its wheels require none in their metadata.
# Source: sglang's releases 0.5.9 to 0.5.23, each of which pins both (Requires-Dist).
KERNEL_TORCH = {
    "sgl-kernel": {"0.3.21": "2.9.1"},
    "sglang-kernel": {
        "0.4.1": "2.9.1",
        "0.4.2": "2.11.0",
        "0.4.2.post2": "2.11.0",
        "0.4.3": "2.11.0",
        "0.4.4": "2.11.0",
        "0.4.5": "2.11.0",
        "0.4.6.post1": "2.13.0",
        "0.4.7": "2.13.0",
        "0.4.9": "2.14.1",
        "0.4.10": "2.14.1",
    },
}

# NVIDIA's distribution of a library by the library's stem. Those of a toolkit end in -cu12 until CUDA 12 and have no
# ending from CUDA 13 on; those with a release of their own always end in -cuNN. Source: torch's Requires-Dist.
_OF_TOOLKIT = {
    "cudart": "nvidia-cuda-runtime",
    "nvrtc": "nvidia-cuda-nvrtc",
    "nvrtc-builtins": "nvidia-cuda-nvrtc",
    "cupti": "nvidia-cuda-cupti",
    "cublas": "nvidia-cublas",
    "cublasLt": "nvidia-cublas",
    "nvblas": "nvidia-cublas",
    "cufft": "nvidia-cufft",
    "cufftw": "nvidia-cufft",
    "cufile": "nvidia-cufile",
    "curand": "nvidia-curand",
    "cusolver": "nvidia-cusolver",
    "cusolverMg": "nvidia-cusolver",
    "cusparse": "nvidia-cusparse",
    "nvJitLink": "nvidia-nvjitlink",
    "nvToolsExt": "nvidia-nvtx",
}
OF_THEIR_OWN = {
    "cudnn": "nvidia-cudnn",
    "cusparseLt": "nvidia-cusparselt",
    "nccl": "nvidia-nccl",
    "nvshmem_host": "nvidia-nvshmem",
}
_STEM = re.compile(r"^lib([\w-]+?)\.so")


@dataclass(frozen=True)
class Since:
    """``what`` of ``distribution`` came with ``version``, and ``consumer`` imports it at start."""

    distribution: str
    version: str
    what: str
    consumer: str
    source: str


SINCE = (
    Since(
        "xgrammar", "0.1.32", "StructuralTag", "sglang", "sglang 0.5.11 constrained/xgrammar_backend.py:22"
    ),
    Since(
        "flashinfer-python",
        "0.6.8.post1",
        "mm_mxfp8",
        "sglang",
        "sglang 0.5.11 layers/quantization/fp8_utils.py:226",
    ),
)


def in_stack(name: str) -> bool:
    """Whether a distribution (canonical name) comes from a CUDA toolkit or is built against one torch."""
    return any(fnmatchcase(name, part) for part in _STACK) and not any(
        fnmatchcase(name, part) for part in _NOT_STACK
    )


def is_toolkit(name: str) -> bool:
    """Whether a distribution is a part of a CUDA toolkit, which a torch of another one has no use for."""
    return in_stack(name) and name.startswith(("nvidia-", "cuda-"))


def is_nvidia_library(soname: str) -> bool:
    """Whether the library is one of the CUDA toolkit's or comes beside it (not the driver's libcuda)."""
    return bool(_NVIDIA.match(soname))


def nvidia_package(soname: str, major: int | None) -> str | None:
    """``nvidia-cuda-nvrtc-cu12`` of ``libnvrtc.so.12``; None for what no distribution of NVIDIA's is known to give."""
    stem = _STEM.match(soname)
    name = stem[1] if stem else ""
    if name in OF_THEIR_OWN:
        return f"{OF_THEIR_OWN[name]}-cu{major}" if major else None
    if name in _OF_TOOLKIT:
        return _OF_TOOLKIT[name] if major is None or major >= 13 else f"{_OF_TOOLKIT[name]}-cu{major}"
    return None


def is_torch_library(soname: str) -> bool:
    """``libc10.so``, ``libtorch_cuda.so`` and the like."""
    return bool(_TORCH_LIBRARY.match(soname))


def is_torch_symbol(symbol: str) -> bool:
    """Whether a mangled or C name is one of libtorch's or libc10's."""
    return bool(_TORCH_SYMBOL.search(symbol))


def cuda_tag(version: str | None) -> str | None:
    """``cu130`` of ``2.11.0+cu130``; None where the version has no such part."""
    local = (version or "").partition("+")[2]
    return next((part for part in local.split(".") if _CUDA_TAG.match(part)), None)


def cuda_of_tag(tag: str) -> str:
    """``13.0`` of ``cu130``."""
    digits = tag.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}"


def cuda_major(name: str, version: str) -> int | None:
    """The CUDA major that a distribution's version or name tells: 13 for ``2.11.0+cu130`` or ``nvidia-nccl-cu13``."""
    tag = cuda_tag(version)
    if tag:
        return int(tag[2:-1])
    suffix = _CUDA_SUFFIX.search(name)
    return int(suffix[1]) if suffix else None


def lacking(name: str, version: str, consumers: Mapping[str, str]) -> Since | None:
    """What a consumer that is there imports of ``name`` at start, and ``version`` does not have yet."""
    for fact in SINCE:
        if fact.distribution == name and fact.consumer in consumers and _older(version, fact.version):
            return fact
    return None


def mixed_pairs(versions: Mapping[str, str]) -> list[tuple[Pair, str, str]]:
    """The pairs whose versions differ, among distributions by canonical name."""
    return [
        (pair, versions[pair.one], versions[pair.other])
        for pair in PAIRS
        if pair.one in versions
        and pair.other in versions
        and _public(versions[pair.one]) != _public(versions[pair.other])
    ]


def _public(version: str) -> str:
    return version.partition("+")[0]


def _older(version: str, than: str) -> bool:
    try:
        return Version(version) < Version(than)
    except InvalidVersion:
        return False
