"""Which driver a CUDA needs, which CUDA first knew a card, and which nvcc a service's builds find: facts as data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.doctor import known
from fleetctl.doctor.rule import Context, Json
from fleetctl.environment.gpucode import Capability
from fleetctl.environment.stacks import cuda_of_tag, cuda_tag
from fleetctl.environment.view import numbers

Version = tuple[int, ...]

# The oldest driver that runs programs of a CUDA major (any minor of it: minor version compatibility).
# Source: NVIDIA, CUDA Toolkit Release Notes, table "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor
# Version Compatibility", and CUDA Compatibility, "Minor Version Compatibility".
DRIVER_OF_CUDA: Mapping[int, str] = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}

# The first CUDA whose nvcc and ptxas name a card, by its release notes ("support for compute capability"); of 10.7
# flashinfer#4217.
CUDA_OF_CARD: Mapping[Capability, str] = {
    (7, 5): "10.0",
    (8, 0): "11.0",
    (8, 6): "11.1",
    (8, 7): "11.4",
    (8, 9): "11.8",
    (9, 0): "11.8",
    (10, 0): "12.8",
    (10, 1): "12.8",
    (10, 3): "12.9",
    (10, 7): "13.3",
    (11, 0): "13.0",
    (12, 0): "12.8",
    (12, 1): "12.9",
}

# The ptxas of triton's wheels and, from 3.6.0 on, the one beside it for SM 10.0 and later.
# Source: triton#10331 (read from the wheels), triton's cmake/nvidia-toolchain-version.json.
TRITON_PTXAS: Mapping[Version, tuple[str, str | None]] = {
    (3, 5): ("12.8.93", None),
    (3, 6): ("12.8.93", "12.9.86"),
    (3, 7): ("12.8.93", "13.1.80"),
}
_IN_PATH = re.compile(r"cuda-(\d+\.\d+)")


def knows(cuda: str | None, card: Capability) -> bool:
    """Whether the compilers of a CUDA (or of one named by a longer version) know a card; True where not known."""
    needed = CUDA_OF_CARD.get(card)
    return needed is None or not cuda or numbers(cuda) >= numbers(needed)


def cuda_of_torch(torch: str | None) -> str | None:
    """``12.8`` of ``2.11.0+cu128``."""
    tag = cuda_tag(torch)
    return cuda_of_tag(tag) if tag else None


def nvcc(context: Context) -> tuple[str | None, str]:
    """``(version, path)`` of the nvcc that a build in the service finds: CUDA_HOME's, else the host's default.

    The version is None where there is no nvcc, or where it is not known which.
    """
    named = variable(context, "CUDA_HOME") or variable(context, "CUDA_PATH")
    if named:
        for one in known.rows(context.facts, "toolkits"):
            if _same(named, one.get("path")) or any(_same(named, link) for link in _links(one)):
                return _nvcc_of(one), named
        found = _IN_PATH.search(named)
        return (found[1] if found else None), named
    for one in known.rows(context.facts, "toolkits"):
        if one.get("default"):
            return _nvcc_of(one), str(one.get("path") or "")
    return None, ""


def newer_toolkits(context: Context, than: str) -> Iterator[tuple[str, str]]:
    """``(version, path)`` of the host's toolkits with an nvcc of at least a version, newest first."""
    found = [(_nvcc_of(one), str(one.get("path") or "")) for one in known.rows(context.facts, "toolkits")]
    fit = [
        (version, path) for version, path in found if version and numbers(version) >= numbers(than) and path
    ]
    yield from sorted(fit, key=lambda pair: numbers(pair[0]), reverse=True)


def variable(context: Context, name: str) -> str:
    """An environment variable of the examined service; empty where it has none."""
    return context.service.variables.get(name, "") if context.service else ""


def driver(facts: Json) -> str | None:
    """The driver's version: the kernel module's, else what a card says."""
    said = known.at(facts, "driver", "version")
    cards = [row.get("driver_version") for row in known.rows(facts, "gpus", "gpus")]
    return next((str(one) for one in (said, *cards) if one), None)


def _nvcc_of(toolkit: Mapping[str, Any]) -> str | None:
    version = toolkit.get("nvcc")
    return str(version) if version else None


def _links(toolkit: Mapping[str, Any]) -> list[Any]:
    links = toolkit.get("links")
    return links if isinstance(links, list) else []


def _same(one: str, other: Any) -> bool:
    return bool(other) and one.rstrip("/") == str(other).rstrip("/")
