"""Which CUDA a library's name belongs to. A soname's number is not always CUDA's."""

from __future__ import annotations

import re
from typing import FrozenSet, Iterable, Optional

from fleetctl.abi.elf import Library

_NAME = re.compile(r"(lib[A-Za-z0-9_-]+?)(?:-[0-9a-f]{8})?\.so\.(\d+)[\d.]*")
_NUMBERED_AS_CUDA = re.compile(
    r"lib(cudart|cublas|cublasLt|nvblas|nvrtc|nvrtc-builtins|nvJitLink|nvfatbin|cupti|nvjpeg|npp[a-z]+)"
)
_NUMBERED_OTHERWISE = {
    "libcufft": {10: 11, 11: 12, 12: 13},
    "libcufftw": {10: 11, 11: 12, 12: 13},
    "libcusolver": {12: 13},  # .so.11 is CUDA 11's and 12's
    "libcusolverMg": {12: 13},
}
_DRIVER = re.compile(r"lib(cuda|nvidia-ml|nvidia-ptxjitcompiler|nvcuvid|nvidia-encode)\.so\.1")


def cuda_major(soname: str) -> Optional[int]:
    """``libcudart.so.13`` → 13, ``libcufft.so.11`` → 12; None where the name does not tell (``libcurand.so.10``)."""
    match = _NAME.fullmatch(soname)
    if match is None:
        return None
    number = int(match[2])
    if _NUMBERED_AS_CUDA.fullmatch(match[1]):
        return number
    return _NUMBERED_OTHERWISE.get(match[1], {}).get(number)


def is_driver(soname: str) -> bool:
    """Whether the library comes with NVIDIA's driver, so that only the host itself can have it."""
    return _DRIVER.fullmatch(soname) is not None


def wanted(library: Library) -> FrozenSet[int]:
    """The CUDA majors that a library's NEEDED names say; more than one cannot work."""
    return majors(library.needed)


def majors(sonames: Iterable[str]) -> FrozenSet[int]:
    """The CUDA majors among names of libraries (``libcudart.so.12.8.90`` counts as well)."""
    return frozenset(major for major in map(cuda_major, sonames) if major is not None)
