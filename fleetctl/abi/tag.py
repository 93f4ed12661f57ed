"""The ABI tag of an environment: ``cp312-torch2.11-cu130-cxx11-glibc2.39-sm120``; what is unknown is left out."""

from __future__ import annotations

import re
from typing import Iterable, List, NamedTuple, Optional, Tuple

from fleetctl.abi.errors import AbiError

PARTS = ("python", "torch", "cuda", "cxx", "glibc", "gpu")
_FORMS = {
    "python": re.compile(r"cp\d{2,3}t?"),
    "torch": re.compile(r"torch\d+\.\d+"),
    "cuda": re.compile(r"cu\d{2,4}|cpu|rocm[\d.]+|xpu"),
    "cxx": re.compile(r"(?:pre)?cxx11"),
    "glibc": re.compile(r"glibc\d+\.\d+"),
    "gpu": re.compile(r"sm\d+[af]?(?:\+\d+[af]?)*"),
}


class AbiTag(NamedTuple):
    """Each part as it stands in the tag, or None. ``str()`` gives the tag."""

    python: Optional[str] = None
    torch: Optional[str] = None
    cuda: Optional[str] = None
    cxx: Optional[str] = None
    glibc: Optional[str] = None
    gpu: Optional[str] = None

    def __str__(self) -> str:
        return "-".join(part for part in self if part)


class Difference(NamedTuple):
    """One ``part`` that is not as ``wanted``; ``breaks`` is False where the other one still loads."""

    part: str
    wanted: str
    given: Optional[str]
    breaks: bool


def abi_tag(
    python: Optional[str] = None,
    torch: Optional[str] = None,
    cuda: Optional[str] = None,
    cxx11: Optional[bool] = None,
    glibc: Optional[str] = None,
    gpus: Iterable[str] = (),
) -> AbiTag:
    """A tag of versions as they are found: ``abi_tag("cp312", "2.11.0+cu130", glibc="2.39", gpus=["12.0"])``.

    ``cuda`` is ``"13.0"``, ``"130"`` or ``"cu130"``, by default what torch's local version says; ``gpus`` are
    ``"120"``, ``"12.0"`` or ``"90a"``.
    """
    version, _, local = (torch or "").partition("+")
    architectures = sorted(
        {gpu.replace(".", "") for gpu in gpus}, key=lambda gpu: (len(gpu.rstrip("af")), gpu)
    )
    return AbiTag(
        python,
        "torch" + ".".join(version.split(".")[:2]) if version else None,
        _cuda(cuda) if cuda else (local if _FORMS["cuda"].fullmatch(local) else None),
        None if cxx11 is None else ("cxx11" if cxx11 else "precxx11"),
        "glibc" + glibc if glibc else None,
        "sm" + "+".join(architectures) if architectures else None,
    )


def parse(text: str) -> AbiTag:
    """A tag's parts; :class:`AbiError` for what is none, or out of order."""
    found: List[Optional[str]] = [None] * len(PARTS)
    left = list(PARTS)
    for piece in text.split("-"):
        while left and not _FORMS[left[0]].fullmatch(piece):
            left.pop(0)
        if not left:
            raise AbiError(f"{piece!r} is not a part of an ABI tag, or not in its place", text)
        found[PARTS.index(left.pop(0))] = piece
    return AbiTag(*found)


def compare(wanted: AbiTag, given: AbiTag) -> Tuple[Difference, ...]:
    """The parts that ``given`` has not as ``wanted``; parts that are not wanted, or not known, are no differences.

    A newer glibc is none; another CUDA of the same major does not break, nor do more GPU architectures.
    """
    return tuple(
        Difference(part, want, have, _breaks(part, want, have))
        for part, want, have in zip(PARTS, wanted, given)
        if want and have and want != have and not (part in ("glibc", "gpu") and not _breaks(part, want, have))
    )


def _breaks(part: str, wanted: str, given: str) -> bool:
    if part == "glibc":
        return _numbers(given) < _numbers(wanted)
    if part == "gpu":
        return not set(wanted[2:].split("+")) <= set(given[2:].split("+"))
    if part == "cuda":
        return wanted[:-1] != given[:-1]
    return True


def _numbers(glibc: str) -> List[int]:
    return [int(number) for number in glibc[len("glibc") :].split(".")]


def _cuda(version: str) -> str:
    if _FORMS["cuda"].fullmatch(version):
        return version
    digits = "".join(version.split(".")[:2]) if "." in version else version
    return "cu" + digits
