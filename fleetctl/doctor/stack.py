"""What rules of libraries and packages ask of the examined environment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from fleetctl.doctor import known
from fleetctl.doctor.finding import Severity
from fleetctl.doctor.rule import Context
from fleetctl.environment.closure import holds
from fleetctl.environment.gpucode import Capability
from fleetctl.environment.stacks import SINCE
from fleetctl.environment.view import COPIED, Entry, View

EVIDENCE = 6
KERNELS = ("sglang-kernel", "sgl-kernel")
# What an engine loads when it starts; another library that does not load breaks only what uses it.
ESSENTIAL = (
    "torch",
    "torchvision",
    "triton",
    "pytorch-triton",
    *KERNELS,
    "vllm",
    "flash-attn*",
    "flashinfer-*",
    "apache-tvm-ffi",
    "xgrammar",
    "causal-conv1d",
    "mamba-ssm",
    "deep-gemm",
    "numpy",
    "tokenizers",
    "safetensors",
    "pyzmq",
    "uvloop",
    "msgspec",
    "orjson",
    "pydantic-core",
    "sentencepiece",
    "nvidia-cublas*",
    "nvidia-cuda-*",
    "nvidia-cudnn-cu*",
    "nvidia-nccl-*",
)
# Libraries of which a package loads the one that fits, or none: their wishes say nothing.
OPTIONAL = (
    "*/libtorchcodec_*",
    "*/libcufile_rdma*",
    "*/libnvshmem_transport*",
    "*/nvshmem_bootstrap*",
    "*/nvshmem_transport*",
    "*/libtorch_nvshmem*",
    "*/tbbpool*",
    "*/omppool*",
    "*/mpi4py/*",
    "*/cutensor*",
    "*/libonnxruntime_providers_*",
    "*/libtorchaudio_sox*",
    "*/_torchaudio_*",
    "*/torchaudio/lib/lib*ffmpeg*",
    "*/torio/lib/*",
    "*mscclpp*",
    "*/tests/*",
    "*/test/*",
)
# What is read of a BOM's entries, each with the value that stands for what is not there or of another kind.
_LIBRARY: Mapping[str, Any] = {
    "path": "",
    "distribution": None,
    "soname": None,
    "needed": (),
    "tag": None,
    "machine": None,
    "glibc": None,
    "glibcxx": None,
    "cuda": 0,
    "gpu": (),
    "missing": (),
    "undefined": (),
    "undefined_count": 0,
    "versions": (),
    "error": "",
}
_DISTRIBUTION: Mapping[str, Any] = {
    "name": "",
    "version": "",
    "requires": (),
    "imports": (),
    "changed": (),
    "changed_count": 0,
    "missing": (),
    "missing_count": 0,
}
_PYTHON: Mapping[str, Any] = {"path": None, "version": None, "tag": None, "real": None, "why": ""}


def view(context: Context) -> View | None:
    """The examined environment by name; None where none is, or where it could not be read."""
    bom = context.bom
    if not bom or bom.get("error") or not isinstance(bom.get("distributions"), list):
        return None
    libraries = [_kept(one, _LIBRARY) for one in known.rows(bom, "extensions")]
    distributions = [_kept(one, _DISTRIBUTION) for one in known.rows(bom, "distributions")]
    platform, abi, python = (known.mapping(bom.get(key)) for key in ("platform", "abi", "python"))
    return View(
        {
            "kind": "venv",
            "path": _text(bom.get("path")) or "",
            "hostname": _text(bom.get("hostname")) or "",
            "python": {**_kept(python, _PYTHON), "runs": python.get("runs")},
            "platform": {key: _text(platform.get(key)) for key in ("arch", "glibc", "glibcxx")},
            "site_packages": _texts(bom.get("site_packages")),
            "distributions": [one for one in distributions if one["name"]],
            "inherited": [_kept(one, _DISTRIBUTION) for one in known.rows(bom, "inherited")],
            "extensions": [one for one in libraries if one["path"]],
            "unowned": {"packages": _texts(known.at(bom, "unowned", "packages"))},
            "twice": [
                {
                    "name": row.get("name"),
                    "versions": _texts(row.get("versions")),
                    "infos": _texts(row.get("infos")),
                }
                for row in known.rows(bom, "twice")
            ],
            "abi": {"torch": _text(abi.get("torch")), "cxx11": abi.get("cxx11")},
        }
    )


def _kept(entry: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that are read of an entry, each of the kind of its default."""
    made: dict[str, Any] = {}
    for key, default in defaults.items():
        value = entry.get(key)
        if isinstance(default, tuple):
            made[key] = _texts(value)
        elif isinstance(default, int):
            made[key] = value if isinstance(value, int) and value > 0 else default
        else:
            made[key] = _text(value) or default
    return made


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def torch(here: View) -> str | None:
    """torch's version with its local part, which wheels of PyPI have only in torch/version.py."""
    said = here.bom.get("abi", {}).get("torch")
    return said if said and "+" in str(said) and "+" not in (here.torch or "") else here.torch


def engine(context: Context, here: View) -> str | None:
    """The engine's distribution that matters: the examined service's, or without a service the one that is there."""
    service = context.service
    if service is not None:
        return service.engine if service.engine in here.versions else None
    return next((name for name in ("sglang", "vllm") if name in here.versions), None)


def libraries(here: View) -> Iterator[tuple[str, list[Entry]]]:
    """Owners with those of their libraries whose wishes matter."""
    for owner, entries in here.by_owner.items():
        kept = [entry for entry in entries if not is_optional(entry)]
        if kept:
            yield owner, kept


def is_optional(entry: Entry) -> bool:
    """Whether the library is one of several of which its package loads what fits."""
    return any(fnmatchcase(f"/{entry['path']}", pattern) for pattern in OPTIONAL)


def is_essential(owner: str) -> bool:
    """Whether an engine loads it at its start."""
    return any(fnmatchcase(owner.removeprefix(COPIED), pattern) for pattern in ESSENTIAL)


def severity_of(owner: str, essential: bool = False) -> Severity:
    """An error where an engine loads it at its start; else only what uses it breaks."""
    return "error" if essential or is_essential(owner) else "info"


def titled(here: View, owner: str) -> str:
    """``sglang-kernel 0.4.2``, or the package's name where no distribution owns it."""
    if owner.startswith(COPIED):
        return f"{owner.removeprefix(COPIED)} (of no distribution)"
    return f"{owner} {here.versions[owner]}" if here.versions.get(owner) else owner


def capabilities(context: Context) -> dict[Capability, str]:
    """The capabilities among the cards that matter, and the name of the first card of each."""
    found: dict[Capability, str] = {}
    for card in known.cards(context):
        capability = known.capability(card)
        if capability and card.get("state", "ok") != "lost":
            found.setdefault(capability, f"GPU {card.get('index')}: {card.get('name') or 'a card'}")
    return found


def required(here: View, who: str, name: str) -> Requirement | None:
    """What a distribution requires of another, whatever the marker."""
    for text in here.distributions.get(who, {}).get("requires") or ():
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue
        if canonicalize_name(wanted.name) == name:
            return wanted
    return None


def pinned(here: View, name: str, otherwise: str = "") -> str:
    """``name==version`` where something of the environment pins it, else with ``otherwise``, else the name alone."""
    for who in here.distributions:
        wanted = required(here, who, name)
        for one in wanted.specifier if wanted else ():
            if one.operator == "==" and not one.version.endswith(".*"):
                return f"{name}=={one.version}"
    return f"{name}=={otherwise}" if otherwise else name


def satisfied(here: View, who: str, name: str) -> bool | None:
    """Whether what ``who`` requires of ``name`` holds; None where it requires nothing, or ``name`` is not there."""
    wanted = required(here, who, name)
    if wanted is None or name not in here.versions:
        return None
    return holds(wanted, here.versions[name])


def of_sglang(context: Context) -> View | None:
    """The environment where SGLang is what is examined."""
    here = view(context)
    return here if here and engine(context, here) == "sglang" else None


def lacking(here: View, name: str) -> tuple[str, str] | None:
    """The version of a distribution that lacks what sglang imports, and the pin that has it; None where it does not.

    A version that the installed sglang itself asks for is right, however old.
    """
    version = here.versions.get(name)
    for fact in SINCE:
        if fact.distribution == name and version and older(version, fact.version):
            return None if satisfied(here, "sglang", name) else (version, pinned(here, name, fact.version))
    return None


def asks(here: View, who: str, name: str) -> list[str]:
    """What a distribution requires of another, as evidence."""
    wanted = required(here, who, name)
    return [f"{titled(here, who)} requires {wanted}"] if wanted else []


def older(version: str | None, than: str) -> bool:
    """Whether a version is known and older."""
    try:
        return version is not None and Version(version) < Version(than)
    except InvalidVersion:
        return False


def first(words: Iterable[str], count: int = 3) -> str:
    """The first few of some names, and how many more there are."""
    every = list(words)
    more = len(every) - count
    return ", ".join(every[:count]) + (f" and {more} more" if more > 0 else "")
