"""A log's claim against what is known of the host: borne out by facts and BOM, or pointing elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from fleetctl.doctor.finding import Finding, Remedy
from fleetctl.doctor.logs.known import Known
from fleetctl.doctor.rule import Context

_SYMBOL = re.compile(r"undefined symbol: (\w+)")
_EXTENSION = re.compile(r"([\w.+-]+\.so[\w.]*): undefined symbol")
_LIBRARY = re.compile(r"(lib[\w+-]+\.so[.\d]*): cannot open")
_MODULE = re.compile(r"No module named '?([\w.]+)")
_PORT = re.compile(r"\('[^']*', (\d+)\)|port:? (\d+)")
_PATH = re.compile(r"'?(/[\w./+-]+)'?")
_NVCC_WANTED = (12, 9)


class Checked(NamedTuple):
    """What facts say to a claim: ``said`` as evidence; ``points`` where it does not hold, with another remedy."""

    said: str
    points: str = ""
    remedy: Remedy | None = None


Check = Callable[[str, Known], "Checked | None"]


def check_claim(finding: Finding, context: Context) -> Finding:
    """The finding with what facts and BOM say to its claim; where they contradict it, it says where to look."""
    check = _CHECKS.get(finding.rule)
    if check is None:
        return finding
    try:
        checked = check("\n".join(finding.evidence), Known(context))
    except Exception as error:  # facts of any shape
        why = f"the claim could not be checked: {type(error).__name__}: {error}"
        return replace(finding, evidence=(*finding.evidence, why))
    if checked is None:
        return finding
    what = f"{finding.what}; but {checked.points}" if checked.points else finding.what
    evidence = (*finding.evidence, f"on this host: {checked.said}")
    return replace(finding, what=what, evidence=evidence, remedy=checked.remedy or finding.remedy)


def _kernel_image(_: str, known: Known) -> Checked | None:
    """``no kernel image``: which libraries lack code for which card."""
    cards, code = known.capabilities, known.variants
    if not cards or not code:
        return None
    lacking = {paths[0]: [card for card in cards if not known.runs(paths, card)] for paths in code.values()}
    worst = {path: each for path, each in lacking.items() if each}
    if not worst:
        named = ", ".join(f"SM {card}" for card in cards)
        said = f"each of {len(code)} libraries with GPU code has some for {named}"
        return Checked(
            said,
            "the environment's libraries have code for these cards: the one that lacks it is another "
            "(compiled at run time by an old nvcc, or loaded from outside) or lacks it for this operation alone",
            Remedy(
                "clear the caches of compiled kernels (~/.cache/flashinfer, ~/.triton, ~/.cache/torch_extensions); "
                "look at LD_LIBRARY_PATH and PYTHONPATH; else a later build of the library in the traceback"
            ),
        )
    shown = "; ".join(f"{path} has none for SM {', '.join(each)}" for path, each in sorted(worst.items())[:3])
    return Checked(shown)


def _symbol(evidence: str, known: Known) -> Checked | None:
    """``undefined symbol``: whether the file lacks it here, and which torch is there."""
    symbol, file = _SYMBOL.search(evidence), _EXTENSION.search(evidence)
    if known.bom is None or not symbol:
        return None
    torch = known.versions.get("torch")
    lacking = known.lacking(symbol[1])
    if lacking:
        owner = known.owner(lacking[0])
        of = f" of {owner}" if owner else ""
        return Checked(f"{lacking[0]}{of} wants {symbol[1]}, which nothing gives; torch {torch} is installed")
    there = known.extensions_named(file[1]) if file else []
    if there:
        return Checked(
            f"{there[0]} finds all its symbols in this environment (torch {torch})",
            "in this environment the file fits its libraries: at run time another library came first, or the log "
            "is of another environment",
            Remedy(
                "take CUDA and torch off LD_LIBRARY_PATH and PYTHONPATH in the unit; import torch before the "
                "extension; see that the log is of this environment"
            ),
        )
    return Checked(f"torch {torch} is installed") if torch else None


def _library(evidence: str, known: Known) -> Checked | None:
    """A library that cannot be opened: whether it is on the host or in the environment."""
    match = _LIBRARY.search(evidence)
    if not match:
        return None
    torch = known.versions.get("torch")
    if known.has_library(match[1]):
        return Checked(
            f"{match[1]} is there",
            "the library is on this host: it is not on the loader's path where the service runs, or came later",
            Remedy(
                "`ldconfig`; the unit's LD_LIBRARY_PATH; import torch first; or the log is older than the library"
            ),
        )
    wanting = known.missing(match[1])
    said = f"{match[1]} is wanted by {wanting[0]} and given by nothing" if wanting else ""
    parts = [said, f"torch {torch} is installed" if torch else ""]
    return Checked("; ".join(filter(None, parts))) if any(parts) else None


def _flashinfer(_: str, known: Known) -> Checked | None:
    """FlashInfer's refusal: the card, and the nvcc that it asks."""
    cards = known.capabilities
    old = [card for card in cards if tuple(map(int, card.split("."))) < (7, 5)]
    if old:
        return Checked(
            f"SM {', '.join(old)}", "this card is older than SM 7.5: FlashInfer does not run on it"
        )
    toolkit = known.toolkit
    if not cards or not toolkit:
        return Checked(f"cards: SM {', '.join(cards)}; no CUDA toolkit found") if cards else None
    said = f"SM {', '.join(cards)}; nvcc {toolkit}"
    if known.numbers(toolkit)[:2] < _NVCC_WANTED:
        return Checked(f"{said}, older than 12.9")
    return Checked(
        said,
        f"the toolkit found first on this host is {toolkit}, new enough: the service runs with another one",
        Remedy(
            "CUDA_HOME and PATH in the unit: the nvcc that FlashInfer asks is the one there, not the shell's"
        ),
    )


def _ptxas(_: str, known: Known) -> Checked | None:
    found = known.facts.get("ptxas")
    if not isinstance(found, dict) or not found:
        return None
    return Checked("; ".join(f"{path} is {version}" for path, version in list(found.items())[:3]))


def _shared_memory(_: str, known: Known) -> Checked | None:
    parts = [f"SM {', '.join(known.capabilities)}"] if known.capabilities else []
    parts += [f"{name} {known.versions[name]}" for name in ("sglang", "triton") if name in known.versions]
    return Checked("; ".join(parts)) if parts else None


def _hopper_only(_: str, known: Known) -> Checked | None:
    cards = known.capabilities
    if cards and all(card.startswith("9.") for card in cards):
        return Checked(
            f"SM {', '.join(cards)}",
            "these cards are Hopper: the kernel package was built without FlashAttention 3",
            Remedy("a kernel package whose sm90 library has it, or --attention-backend triton"),
        )
    return Checked(f"SM {', '.join(cards)}") if cards else None


def _module(evidence: str, known: Known) -> Checked | None:
    match = _MODULE.search(evidence)
    name = match[1].split(".")[0] if match else "soundfile" if "sndfile" in evidence else ""
    if not name or known.bom is None:
        return None
    version = known.versions.get(name.replace("_", "-"))
    if version is None:
        return Checked(f"{name} is not among the environment's distributions")
    return Checked(
        f"{name} {version} is installed",
        f"{name} is in this environment: the service runs in another one, or its files are not whole",
        Remedy("the interpreter in the unit's ExecStart; `fleetctl env verify`"),
    )


def _xgrammar(_: str, known: Known) -> Checked | None:
    version = known.versions.get("xgrammar")
    if version is None:
        return None
    if known.numbers(version) < (0, 1, 32):
        return Checked(f"xgrammar {version}")
    return Checked(
        f"xgrammar {version}",
        "this xgrammar has it: another copy is imported first, or the log is of another environment",
        Remedy("look for a second xgrammar on PYTHONPATH; `fleetctl env verify`"),
    )


def _cubin(_: str, known: Known) -> Checked | None:
    pair = {name: known.versions.get(name) for name in ("flashinfer-python", "flashinfer-cubin")}
    if not all(pair.values()):
        return None
    said = ", ".join(f"{name} {version}" for name, version in pair.items())
    same = len(set(pair.values())) == 1
    return Checked(said, "both are of one version here: the log is of another environment" if same else "")


def _memory(_: str, known: Known) -> Checked | None:
    apps = known.apps
    if not apps:
        return None
    shown = ", ".join(
        f"{app.get('used_mib')} MiB of GPU {app.get('gpu')} by {app.get('name')} (pid {app.get('pid')})"
        for app in apps[:4]
    )
    return Checked(f"in use now: {shown}")


def _port(evidence: str, known: Known) -> Checked | None:
    match = _PORT.search(evidence)
    number = next((one for one in match.groups() if one), "") if match else ""
    ports = known.facts.get("ports")
    owner: Any = ports.get(number) or ports.get(int(number)) if isinstance(ports, dict) and number else None
    if not isinstance(owner, dict):
        return None
    by = owner.get("unit") or owner.get("command")
    return Checked(f"port {number} is held by process {owner.get('pid')} ({by})")


def _model(evidence: str, known: Known) -> Checked | None:
    for path, one in known.models.items():
        if path in evidence or (known.service and path == known.service.model):
            if not one.get("exists"):
                return Checked(f"{path} is not there")
            problems = one.get("problems") or []
            if problems:
                return Checked(f"{path}: {problems[0]}")
            return Checked(
                f"{path} is there",
                "the model is on this host: the service's user may not read it, or names another",
            )
    return None


def _disk(evidence: str, known: Known) -> Checked | None:
    disks = [one for one in known.facts.get("disks") or [] if isinstance(one, dict)]
    tight = [one for one in disks if (one.get("free_bytes") or 0) < 1 << 30 or one.get("free_inodes") == 0]
    if tight:
        return Checked(
            ", ".join(f"{one.get('mount')} has {one.get('free_bytes')} bytes left" for one in tight[:3])
        )
    return Checked(f"none of {len(disks)} disks is full now") if disks else None


def _killed(_: str, known: Known) -> Checked | None:
    lines = known.kernel_lines("oom")
    return Checked(f"the kernel's log: {lines[-1]}") if lines else None


def _xid(_: str, known: Known) -> Checked | None:
    lost = [
        f"GPU {one.get('index')}: {one.get('said') or one.get('state')}"
        for one in known.gpus
        if one.get("state") not in (None, "ok")
    ]
    said = [*lost, *known.kernel_lines("xid")[-2:]]
    return Checked("; ".join(said)) if said else None


def _driver(_: str, known: Known) -> Checked | None:
    driver = known.facts.get("driver")
    if not isinstance(driver, dict) or not driver.get("version"):
        return None
    torch = known.versions.get("torch")
    return Checked(
        f"driver {driver['version']} (CUDA {driver.get('cuda')})" + (f", torch {torch}" if torch else "")
    )


_CHECKS: dict[str, Check] = {
    "arch-per-op-gap": _kernel_image,
    "arch-torch-card": _kernel_image,
    "abi-torch-symbol": _symbol,
    "abi-cxx11": _symbol,
    "abi-undefined-symbol": _symbol,
    "abi-nvjitlink": _symbol,
    "abi-cuda-major-12-needs-13": _library,
    "abi-cuda-major-13-needs-12": _library,
    "abi-libnvrtc-12": _library,
    "abi-cudnn": _library,
    "sys-libnuma": _library,
    "sys-library": _library,
    "drv-missing": _library,
    "arch-flashinfer-sm12x": _flashinfer,
    "arch-flashinfer-sm75-message": _flashinfer,
    "arch-nvcc": _flashinfer,
    "arch-ptxas": _ptxas,
    "arch-triton-smem": _shared_memory,
    "cfg-fa3-on-sm120": _hopper_only,
    "pkg-soundfile": _module,
    "pkg-missing-module": _module,
    "pkg-structural-tag": _xgrammar,
    "pkg-cubin-version": _cubin,
    "gpu-out-of-memory": _memory,
    "gpu-busy": _memory,
    "gpu-kv-cache": _memory,
    "svc-port-taken": _port,
    "model-missing": _model,
    "model-file-damaged": _model,
    "model-shards-missing": _model,
    "sys-disk-full": _disk,
    "sys-out-of-memory": _killed,
    "svc-killed": _killed,
    "gpu-fault": _xid,
    "gpu-fell-off": _xid,
    "gpu-xid": _xid,
    "gpu-ecc": _xid,
    "drv-too-old": _driver,
    "drv-mismatch": _driver,
}
