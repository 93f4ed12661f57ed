"""DRV: the driver, its kernel module and its libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.doctor.facts import bom_of
from fleetctl.doctor.finding import Remedy, Severity
from fleetctl.doctor.known import at, mapping, rows
from fleetctl.doctor.rule import Context, Found, Json, rule
from fleetctl.doctor.stack import capabilities, torch, view
from fleetctl.doctor.toolkit import DRIVER_OF_CUDA, driver, variable
from fleetctl.environment.gpucode import named
from fleetctl.environment.view import numbers

MISMATCH = re.compile(r"[Dd]river/library version mismatch|API mismatch", re.IGNORECASE)
NOT_LOADED = re.compile(r"couldn't communicate with the NVIDIA driver|NVML: Driver Not Loaded", re.IGNORECASE)
NO_LIBRARY = re.compile(r"couldn't find libnvidia-ml\.so|NVML Shared Library Not Found", re.IGNORECASE)
NO_DEVICES = re.compile(r"No devices were found", re.IGNORECASE)
WANTS_OPEN = re.compile(r"requires use of the NVIDIA open kernel modules|open kernel modules", re.IGNORECASE)
WANTS_PROPRIETARY = re.compile(r"not supported by open|does not include the required GPU", re.IGNORECASE)
NOUVEAU = re.compile(r"nouveau", re.IGNORECASE)
LIBRARY = re.compile(r"NVML library version: ([\d.]+)")
VERSIONS = re.compile(r"client has the version ([\d.]+).*?kernel module has the version ([\d.]+)", re.DOTALL)
NO_ROOM = re.compile(
    r"BAR\d? is 0M @ 0x0|not enough.*(?:MMIO|BAR)|assigned no space|is invalid.*BAR", re.IGNORECASE
)
FIRST_OF_CARD = {(12, 0): "570"}


@rule(
    "drv-too-old",
    "error",
    reason="A driver runs programs of its own CUDA major and of older ones, of any minor; not of a newer major.",
    source="NVIDIA, CUDA Toolkit Release Notes: minimum required driver version; pytorch#162531 (found version 12080)",
)
def too_old(context: Context) -> Iterator[Found]:
    here, version = view(context), driver(context.facts)
    needed = DRIVER_OF_CUDA.get(here.cuda) if here and here.cuda else None
    if here is None or not version or needed is None or numbers(version) >= numbers(needed):
        return
    if "compat" in variable(context, "LD_LIBRARY_PATH"):
        return
    newest = at(context.facts, "driver", "cuda")
    supports = f"driver {version} supports CUDA {newest}" if newest else f"the driver is {version}"
    fits = max(
        (major for major, least in DRIVER_OF_CUDA.items() if numbers(version) >= numbers(least)), default=None
    )
    what = f"the driver {version} is older than torch {torch(here)} needs: CUDA {here.cuda} wants {needed} or later"
    text = f"a driver of {needed.split('.')[0]} or later" + (f", or a torch for CUDA {fits}" if fits else "")
    remedy = Remedy(f"{text} (on data centre cards NVIDIA's cuda-compat package also does)")
    yield Found(what, "driver", [supports], remedy)


@rule(
    "drv-mismatch",
    "error",
    reason="An update replaced the driver's libraries while the old kernel module stays loaded: nothing new starts "
    "on the GPUs until both are of one version.",
    source="NVIDIA/ubuntu-packaging-nvidia-driver#3; NVRM's line API mismatch",
    remedy=Remedy(
        "reboot the host (or stop what uses the GPUs and load the module anew); hold the driver's packages back from "
        "unattended upgrades",
        commands=("reboot", "apt-mark hold 'nvidia-*' 'libnvidia-*'"),
    ),
)
def mismatch(context: Context) -> Iterator[Found]:
    said = [*_said(context.facts), *_kernel_lines(context.facts)]
    lines = [line for line in said if MISMATCH.search(line)]
    module, library = at(context.facts, "driver", "module"), at(context.facts, "driver", "library")
    known = VERSIONS.search("\n".join(lines))
    told = LIBRARY.search("\n".join(said))
    if known:
        library, module = known[1].rstrip("."), known[2].rstrip(".")
    elif lines:
        module = module or at(context.facts, "driver", "version")
        library = library or (told[1] if told else None)
    differ = bool(module and library) and not _same(str(module), str(library))
    if not lines and not differ:
        return
    order = ""
    if module and library and differ:
        newer = numbers(str(module)) > numbers(str(library))
        order = (
            f": the kernel module is {module}, {'newer' if newer else 'older'} than the libraries, {library}"
        )
    yield Found(
        f"the driver's kernel module and its libraries are of two versions{order}", "driver", lines[:3]
    )


@rule(
    "drv-not-loaded",
    "error",
    reason="Without the kernel module no GPU is there; after a kernel update it may not have been built for the new "
    "kernel.",
    source="nvidia-smi's own message; NVIDIA driver installation guide, DKMS",
    remedy=Remedy(
        "load the module, or build it for this kernel; see the kernel log where it refuses (Secure Boot, nouveau)",
        commands=("modprobe nvidia", "dkms status", "dkms autoinstall"),
    ),
)
def not_loaded(context: Context) -> Iterator[Found]:
    lines = [line for line in _said(context.facts) if NOT_LOADED.search(line)]
    if lines:
        kernel = context.facts.get("kernel")
        evidence = [*lines[:2], *([f"kernel {kernel}"] if kernel else []), *_about(context.facts, NOUVEAU)]
        yield Found("nvidia-smi is there, the driver's kernel module is not loaded", "driver", evidence)


@rule(
    "drv-missing",
    "error",
    reason="A torch for CUDA needs NVIDIA's driver on the host; no environment brings it.",
    source="sglang#4778 (libcuda.so.1); NVIDIA driver installation guide",
)
def missing(context: Context) -> Iterator[Found]:
    facts = context.facts
    gpus = facts.get("gpus")
    if not isinstance(gpus, dict) or rows(facts, "gpus", "gpus") or driver(facts):
        return
    said = _said(facts)
    if any(each.search(line) for line in said for each in (NOT_LOADED, MISMATCH, NO_DEVICES)):
        return
    absent = not said or any(
        NO_LIBRARY.search(line) or "not found" in line or "No such" in line for line in said
    )
    here = view(context)
    cuda = bool(here and here.cuda)
    if not absent or not (cuda or said or context.service):
        return
    least = DRIVER_OF_CUDA.get(here.cuda) if here and here.cuda else None
    text = f"install NVIDIA's driver{f', {least} or later,' if least else ''} on the host; "
    remedy = Remedy(
        f"{text}in a container start it with --gpus (NVIDIA Container Toolkit)",
        commands=("apt-get install nvidia-driver-580-open",),
    )
    severity: Severity = "error" if cuda or context.service else "warning"
    yield Found("the host has no NVIDIA driver", "driver", said[:2], remedy, severity)


@rule(
    "drv-libcuda",
    "error",
    reason="libcuda.so.1 comes with the driver's compute libraries; a host may have the module and nvidia-smi without "
    "them, a container without the compute capability too.",
    source="sglang#4778 (libcuda.so.1: cannot open shared object file); NVIDIA Container Toolkit, driver capabilities",
    remedy=Remedy(
        "install the driver's compute library of the same version; in a container ask for the capability compute "
        "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
        commands=("apt-get install libnvidia-compute-580",),
    ),
)
def libcuda(context: Context) -> Iterator[Found]:
    version = driver(context.facts)
    if version and at(context.facts, "libraries", "libcuda.so.1") is False:
        what = f"the driver {version} is there, its libcuda.so.1 is not"
        yield Found(what, "libcuda.so.1", severity="error" if _may_need_cuda(context) else "warning")


def _may_need_cuda(context: Context) -> bool:
    """Whether the environment examined, or without one any of the host's, has a torch for CUDA, or none is known."""
    paths = mapping(context.facts.get("environments"))
    boms = [context.bom] if context.bom else [bom_of(context.facts, path) for path in paths]
    seen = [here for bom in boms if (here := view(Context(bom=bom)))]
    return not seen or any(here.cuda for here in seen)


@rule(
    "drv-open-module",
    "error",
    reason="Blackwell cards are driven by the open kernel modules alone; the proprietary ones do not see them.",
    source="NVIDIA driver installation guide, Kernel Modules; open-gpu-kernel-modules#862, #872; metal-images#399",
    remedy=Remedy(
        "install the open flavour of the driver (Ubuntu: nvidia-driver-580-open) in place of the proprietary one, and "
        "reboot",
        commands=("apt-get install nvidia-driver-580-open", "reboot"),
    ),
)
def open_module(context: Context) -> Iterator[Found]:
    lines = [line for line in _kernel_lines(context.facts) if _wants_open(line)]
    if lines:
        yield Found(
            "a card here needs NVIDIA's open kernel modules, the proprietary ones are loaded",
            "driver",
            lines[:3],
        )


@rule(
    "drv-proprietary-module",
    "error",
    reason="The open kernel modules drive cards from Turing on; older ones have no GPU System Processor.",
    source="NVIDIA driver installation guide, Kernel Modules; open-gpu-kernel-modules#322",
    remedy="install the proprietary flavour of the driver, and reboot",
)
def proprietary_module(context: Context) -> Iterator[Found]:
    lines = [line for line in _kernel_lines(context.facts) if WANTS_PROPRIETARY.search(line)]
    if lines:
        yield Found("a card here is too old for the open kernel modules that are loaded", "driver", lines[:3])


@rule(
    "drv-no-devices",
    "error",
    reason="A driver that is loaded and finds no card: it does not know it, its flavour does not drive it, or the "
    "firmware gave the card no address space.",
    source="open-gpu-kernel-modules#862, #872 (No devices were found)",
)
def no_devices(context: Context) -> Iterator[Found]:
    said = [line for line in _said(context.facts) if NO_DEVICES.search(line)]
    if not said or rows(context.facts, "gpus", "gpus") or any(map(_wants_open, _kernel_lines(context.facts))):
        return
    space = _about(context.facts, NO_ROOM)
    text = (
        "turn on Above 4G Decoding and Resizable BAR in the firmware"
        if space
        else (
            "see `lspci -d 10de:` and the kernel log; then: the open kernel modules for Blackwell, a newer driver, "
            "Above 4G Decoding and Resizable BAR in the firmware"
        )
    )
    version = driver(context.facts)
    what = f"the driver{f' {version}' if version else ''} is loaded and finds no card"
    remedy = Remedy(text, commands=("lspci -nnd 10de:", "journalctl -k -b | grep -i nvrm"))
    yield Found(what, "driver", [*said[:1], *_kernel_lines(context.facts)[:3]], remedy)


@rule(
    "drv-card-too-new",
    "warning",
    reason="A driver branch from before a card drives it badly or not at all.",
    source="oddmario/NVIDIA-Ubuntu-Driver-Guide#10 (RTX 50 and RTX PRO 6000 from 570 on)",
)
def card_too_new(context: Context) -> Iterator[Found]:
    version = driver(context.facts)
    for card, name in capabilities(context).items():
        least = FIRST_OF_CARD.get(card)
        if version and least and numbers(version)[:1] < numbers(least):
            remedy = Remedy(f"a driver of {least} or later, with the open kernel modules")
            yield Found(f"the driver {version} is older than {named(card)}", "driver", [name], remedy)


@rule(
    "drv-two-versions",
    "warning",
    reason="Cards of one host are driven by one module; two versions in one answer mean facts that are mixed or old.",
    source="nvidia-smi, --query-gpu=driver_version",
    remedy="gather the facts again; reboot where it stays",
)
def two_versions(context: Context) -> Iterator[Found]:
    cards = rows(context.facts, "gpus", "gpus")
    versions = sorted({str(card["driver_version"]) for card in cards if card.get("driver_version")})
    if len(versions) > 1:
        yield Found(f"cards tell {len(versions)} driver versions", "driver", versions)


def _wants_open(line: str) -> bool:
    return bool(WANTS_OPEN.search(line)) and not WANTS_PROPRIETARY.search(line)


def _said(facts: Json) -> list[str]:
    """What nvidia-smi said besides its rows, and why it or a part of the facts failed."""
    errors = mapping(facts.get("errors"))
    found = [
        at(facts, "gpus", "error"),
        at(facts, "driver", "error"),
        errors.get("gpus"),
        errors.get("driver"),
    ]
    found += [card.get("said") for card in rows(facts, "gpus", "gpus")]
    return list(dict.fromkeys(str(one) for one in found if one))


def _kernel_lines(facts: Json) -> list[str]:
    lines = at(facts, "kernel_log", "nvrm")
    return [str(line) for line in lines] if isinstance(lines, list) else []


def _about(facts: Json, pattern: re.Pattern[str]) -> list[str]:
    return [line for line in _kernel_lines(facts) if pattern.search(line)][:2]


def _same(one: str, other: str) -> bool:
    """Whether two versions agree as far as both say: NVML tells 570.124 of 570.124.06."""
    first, second = numbers(one), numbers(other)
    shortest = min(len(first), len(second))
    return first[:shortest] == second[:shortest]
