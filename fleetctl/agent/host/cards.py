"""GPUs as doctor sees them: alive or not, their errors, who holds their memory, the driver, how they are linked."""

from __future__ import annotations

import re
import shutil
import struct
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from fleetctl.agent.errors import AgentError
from fleetctl.agent.host import smi
from fleetctl.agent.units import systemd

Json = Dict[str, Any]

SMI_S = 10.0
FIELDS = [
    "index",
    "name",
    "uuid",
    "driver_version",
    "memory.total",
    "memory.used",
    "memory.free",
    "compute_cap",
    "pci.bus_id",
    "ecc.errors.uncorrected.volatile.total",
    "retired_pages.double_bit.count",
    "remapped_rows.uncorrectable",
    "remapped_rows.failure",
    "temperature.gpu",
    "pstate",
    "persistence_mode",
    "mig.mode.current",
    "power.draw",
]
APP_FIELDS = ["gpu_uuid", "pid", "used_memory", "process_name"]
ON_OFF = {"Enabled": True, "Disabled": False}
YES_NO = {"Yes": True, "No": False, "1": True, "0": False}
LOST = re.compile(r"is lost|fallen off the bus", re.IGNORECASE)
BROKEN = re.compile(r"^\[.*(?:\bis lost|Error)\]$")
HANDLE = re.compile(r"\bGPU ?((?:[0-9A-Fa-f]{4,8}:)[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\b")
# The newest CUDA of a driver's branch, for a driver whose nvidia-smi does not say it (a dead GPU, another language).
BRANCHES = {
    595: "13.2", 590: "13.1", 580: "13.0", 575: "12.9", 570: "12.8", 565: "12.7", 560: "12.6", 555: "12.5",
    550: "12.4", 545: "12.3", 535: "12.2", 530: "12.1", 525: "12.0", 520: "11.8", 515: "11.7", 510: "11.6",
    495: "11.5", 470: "11.4", 465: "11.3", 460: "11.2", 455: "11.1", 450: "11.0",
}  # fmt: skip
MODULE = Path("/proc/driver/nvidia/version")
DEVICES = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY, BRIDGE = "0x10de", "0x03", "0x0604"
ACS, ACS_REDIRECT = 0x000D, 0x000C


def look(seconds: float = SMI_S) -> Json:
    """``{"gpus", "apps", "error", "unknown_fields", "on_bus"}``: questions side by side, all within ``seconds``.

    ``on_bus``: PCI addresses of NVIDIA's display devices, whatever the driver says. Without ``nvidia-smi`` there are
    no GPUs, and an error only where a card is on the bus.
    """
    bus = on_bus()
    if shutil.which("nvidia-smi") is None:
        error = "nvidia-smi is not on this host" if bus else None
        return {"gpus": [], "apps": [], "error": error, "unknown_fields": [], "on_bus": bus}
    held: List[smi.Answer] = []
    other = threading.Thread(
        target=lambda: held.append(smi.ask("--query-compute-apps", APP_FIELDS, seconds)), daemon=True
    )
    other.start()
    answer = smi.ask("--query-gpu", FIELDS, seconds)
    other.join(seconds)
    gpus = read_gpus(answer.rows, answer.said)
    apps = read_apps(held[0].rows if held else [], gpus, systemd.unit_of)
    error = answer.error or (held[0].error if held else None)
    return {"gpus": gpus, "apps": apps, "error": error, "unknown_fields": answer.unknown, "on_bus": bus}


def read_gpus(rows: List[smi.Row], said: List[str]) -> List[Json]:
    """Each GPU that a row or a line names. A row without any value is a dead card, worded by a line of ``said``."""
    handles = [line for line in said if HANDLE.search(line)]
    gpus = []
    for place, row in enumerate(rows):
        dead = all(smi.told(cell) is None for cell in row.values())
        words = handles.pop(0) if dead and handles else ""
        gpus.append(_dead(place, words or (row.get("index") or "").strip("[]")) if dead else _gpu(place, row))
    return gpus + [_dead(len(rows) + more, line) for more, line in enumerate(handles)]


def _gpu(place: int, row: smi.Row) -> Json:
    index = smi.whole(row.get("index"))
    return {
        "index": place if index is None else index,
        "name": smi.told(row.get("name")),
        "uuid": smi.told(row.get("uuid")),
        "driver_version": smi.told(row.get("driver_version")),
        "memory_total_mib": smi.whole(row.get("memory.total")),
        "memory_used_mib": smi.whole(row.get("memory.used")),
        "memory_free_mib": smi.whole(row.get("memory.free")),
        "compute_cap": smi.told(row.get("compute_cap")),
        "bus_id": smi.told(row.get("pci.bus_id")),
        "ecc_uncorrected": smi.whole(row.get("ecc.errors.uncorrected.volatile.total")),
        "retired_pages": smi.whole(row.get("retired_pages.double_bit.count")),
        "remapped_rows": smi.whole(row.get("remapped_rows.uncorrectable")),
        "remap_failed": smi.value(row.get("remapped_rows.failure"), YES_NO),
        "temperature": smi.whole(row.get("temperature.gpu")),
        "power_w": smi.number(row.get("power.draw")),
        "pstate": smi.told(row.get("pstate")),
        "persistence": smi.value(row.get("persistence_mode"), ON_OFF),
        "mig": smi.told(row.get("mig.mode.current")),
        "state": _state(row),
        "said": next((cell for cell in row.values() if cell and BROKEN.search(cell)), ""),
    }


def _state(row: smi.Row) -> str:
    cells = [cell for cell in row.values() if cell]
    if any(LOST.search(cell) for cell in cells):
        return "lost"
    return "error" if any(BROKEN.search(row.get(name) or "") for name in ("uuid", "memory.total")) else "ok"


def _dead(place: int, words: str) -> Json:
    """A card that does not answer: its address, where the words have it, and what was said."""
    gpu = dict.fromkeys(_gpu(place, {}))
    named = HANDLE.search(words)
    state = "lost" if LOST.search(words) else "error"
    bus_id = named[1].rjust(16, "0").upper() if named else None
    return {**gpu, "index": place, "bus_id": bus_id, "state": state, "said": words}


def read_apps(rows: List[smi.Row], gpus: List[Json], unit_of: Callable[[int], Optional[str]]) -> List[Json]:
    """``{"pid", "name", "used_mib", "gpu", "unit"}`` of each process that nvidia-smi names."""
    indexes = {gpu["uuid"]: gpu["index"] for gpu in gpus if gpu["uuid"]}
    apps = []
    for row in rows:
        pid = smi.whole(row.get("pid"))
        if pid is None:
            continue
        apps.append(
            {
                "pid": pid,
                "name": smi.told(row.get("process_name")),
                "used_mib": smi.whole(row.get("used_memory")),
                "gpu": indexes.get(row.get("gpu_uuid") or ""),
                "unit": unit_of(pid),
            }
        )
    return apps


def driver(gpus: Json, said_cuda: Optional[str]) -> Json:
    """``{"version", "cuda", "module", "library"}``: the driver, the newest CUDA it supports, what is loaded, its NVML.

    ``gpus`` is :func:`look`'s answer, ``said_cuda`` :func:`supported_cuda`'s; without it the driver's branch tells.
    """
    module = module_version()
    named = (gpu["driver_version"] for gpu in gpus["gpus"] if gpu["driver_version"])
    version = next(named, module)
    return {
        "version": version,
        "cuda": said_cuda or branch_cuda(version),
        "module": module,
        "library": library_version(),
    }


def supported_cuda(seconds: float = SMI_S) -> Optional[str]:
    """The newest CUDA that nvidia-smi says the driver supports; None without nvidia-smi."""
    return smi.cuda_version(seconds) if shutil.which("nvidia-smi") else None


def branch_cuda(version: Optional[str]) -> Optional[str]:
    """The newest CUDA of a driver's branch, ``580.159.04`` → ``13.0``; of the next older one that is known."""
    head = (version or "").partition(".")[0]
    fitting = [branch for branch in BRANCHES if head.isdigit() and branch <= int(head)]
    return BRANCHES[max(fitting)] if fitting else None


def module_version() -> Optional[str]:
    """The version of the loaded kernel module; None where none is loaded."""
    try:
        found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", MODULE.read_text(errors="replace"))
    except OSError:
        return None
    return found[1] if found else None


def library_version(root: str = "/") -> Optional[str]:
    """The version of the driver's own library on the disk, by its file's name (CUDA's compat folders have no NVML)."""
    from fleetctl.abi.loader import System

    for path in System(root).find("libnvidia-ml.so.1"):
        found = re.search(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)$", str(Path(path).resolve()))
        if found:
            return found[1]
    return None


def topology(seconds: float = SMI_S) -> Json:
    """``{"links", "peer": {"0-1": …}, "iommu", "acs"}``; links and peer are empty for one GPU.

    ``iommu``: the kernel translates devices' addresses. ``acs``: a bridge sends traffic between cards up to the
    root; None where that cannot be read.
    """
    links: Dict[str, str] = {}
    peer: Dict[str, str] = {}
    if shutil.which("nvidia-smi"):
        links = _matrix(["-m"], seconds / 2)
        peer = _matrix(["-p2p", "r"], seconds / 2) if links else {}
    return {"links": links, "peer": peer, "iommu": iommu(), "acs": acs()}


def _matrix(words: List[str], seconds: float) -> Dict[str, str]:
    try:
        return smi.matrix(words, seconds)
    except (AgentError, OSError):
        return {}


def iommu() -> Optional[bool]:
    """Whether devices stand in IOMMU groups; None where /sys does not say."""
    folder = Path("/sys/kernel/iommu_groups")
    try:
        return any(folder.iterdir())
    except OSError:
        return None


def on_bus(devices: Path = DEVICES) -> List[str]:
    """The PCI addresses of NVIDIA's display devices."""
    return [
        place.name
        for place in _devices(devices)
        if _word(place / "vendor") == NVIDIA and _word(place / "class").startswith(DISPLAY)
    ]


def acs(devices: Path = DEVICES) -> Optional[bool]:
    """Whether a PCI bridge above an NVIDIA card redirects peers' traffic; None where no bridge can be read."""
    seen: List[bool] = []
    for address in on_bus(devices):
        for parent in (devices / address).resolve().parents:
            if _word(parent / "class").startswith(BRIDGE):
                found = acs_control(_bytes(parent / "config"))
                seen += [] if found is None else [bool(found & ACS_REDIRECT)]
    return any(seen) if seen else None


def acs_control(config: bytes) -> Optional[int]:
    """The ACS control register of a device's configuration space; None where it has none or is cut short."""
    at = 0x100
    for _ in range(64):
        if at < 0x100 or at + 8 > len(config):
            return None
        (head,) = struct.unpack_from("<I", config, at)
        if head & 0xFFFF == ACS:
            return int(struct.unpack_from("<H", config, at + 6)[0])
        at = head >> 20
    return None


def _devices(folder: Path) -> List[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _word(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
