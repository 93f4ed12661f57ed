"""The host's GPUs and who uses their memory, through ``nvidia-smi``."""

from __future__ import annotations

import csv
import shutil
from typing import Any, Dict, List, Optional

from fleetctl.agent import systemd
from fleetctl.agent.errors import AgentError

GPU_FIELDS = [
    "index",
    "name",
    "uuid",
    "driver_version",
    "memory.total",
    "memory.used",
    "memory.free",
    "compute_cap",
    "pci.bus_id",
]
APP_FIELDS = ["gpu_uuid", "pid", "process_name", "used_memory"]
KEYS = {
    "memory.total": "memory_total_mib",
    "memory.used": "memory_used_mib",
    "memory.free": "memory_free_mib",
    "used_memory": "used_mib",
    "pci.bus_id": "bus_id",
    "process_name": "name",
}
NUMBERS = {"index", "memory.total", "memory.used", "memory.free", "pid", "used_memory"}
TIMEOUT_S = 20.0


def query() -> Dict[str, Any]:
    """``{"gpus": [..], "apps": [..], "error"}``: two short calls of ``nvidia-smi``.

    A field that the driver does not tell (``[N/A]``) is None. A host without ``nvidia-smi`` has no GPUs
    and no error. An app's ``gpu`` is its card's index.
    """
    if shutil.which("nvidia-smi") is None:
        return {"gpus": [], "apps": [], "error": None}
    try:
        gpus = _ask("--query-gpu", GPU_FIELDS)
        apps = _ask("--query-compute-apps", APP_FIELDS)
    except AgentError as error:
        return {"gpus": [], "apps": [], "error": "; ".join([error.what, *error.evidence])}
    indexes = {gpu["uuid"]: gpu["index"] for gpu in gpus}
    for app in apps:
        app["gpu"] = indexes.get(app.pop("gpu_uuid"))
    return {"gpus": gpus, "apps": apps, "error": None}


def _ask(query_: str, fields: List[str]) -> List[Dict[str, Any]]:
    done = systemd.run(
        ["nvidia-smi", f"{query_}={','.join(fields)}", "--format=csv,noheader,nounits"], TIMEOUT_S
    )
    rows = [
        row for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True) if len(row) == len(fields)
    ]
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise AgentError(f"nvidia-smi ended with status {done.returncode}", evidence=said[:5])
    return [
        {KEYS.get(name, name): _value(name, text.strip()) for name, text in zip(fields, row)} for row in rows
    ]


def _value(name: str, text: str) -> Any:
    if text.startswith("[") or text in ("N/A", ""):
        return None
    return _number(text) if name in NUMBERS else text


def _number(text: str) -> Optional[int]:
    try:
        return int(float(text.split()[0]))
    except ValueError:
        return None
