"""The host's GPUs and who uses their memory, through ``nvidia-smi``."""

from __future__ import annotations

import csv
import threading
from typing import Any, Dict, List, Optional, Tuple

from fleetctl.agent.errors import AgentError
from fleetctl.agent.units import systemd

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

Row = Dict[str, Any]


def query() -> Dict[str, Any]:
    """``{"gpus": [..], "apps": [..], "error"}``: two calls of ``nvidia-smi``, side by side.

    A field that the driver does not tell (``[N/A]``) is None; of a lost card it tells none. A host without
    ``nvidia-smi`` has no GPUs and no error. An app's ``gpu`` is its card's index.
    """
    import shutil

    if shutil.which("nvidia-smi") is None:
        return {"gpus": [], "apps": [], "error": None}
    apps_answer: List[Tuple[List[Row], Optional[str]]] = []
    other = threading.Thread(target=lambda: apps_answer.append(_ask("--query-compute-apps", APP_FIELDS)))
    other.start()
    gpus, error = _ask("--query-gpu", GPU_FIELDS)
    other.join()
    apps, apps_error = apps_answer[0] if apps_answer else ([], "nvidia-smi was not asked")
    for place, gpu in enumerate(gpus):
        gpu["index"] = place if gpu["index"] is None else gpu["index"]
    indexes = {gpu["uuid"]: gpu["index"] for gpu in gpus if gpu["uuid"]}
    for app in apps:
        app["gpu"] = indexes.get(app.pop("gpu_uuid"))
    return {"gpus": gpus, "apps": apps, "error": error or apps_error}


def _ask(question: str, fields: List[str]) -> Tuple[List[Row], Optional[str]]:
    """The rows that came, and what ``nvidia-smi`` said besides where it failed (for one card, or for all)."""
    command = ["nvidia-smi", f"{question}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = systemd.run(command, TIMEOUT_S)
    except AgentError as error:
        return [], error.what
    lines = list(csv.reader(done.stdout.splitlines(), skipinitialspace=True))
    rows = [line for line in lines if len(line) == len(fields)]
    said = [", ".join(line) for line in lines if line and len(line) != len(fields)]
    answers = [
        {KEYS.get(name, name): _value(name, text.strip()) for name, text in zip(fields, row)} for row in rows
    ]
    if not done.returncode:
        return answers, None
    why = "; ".join([*said, *done.stderr.split("\n")][:3]).strip("; ")
    return answers, f"nvidia-smi ended with status {done.returncode}: {why}"


def _value(name: str, text: str) -> Any:
    if text.startswith("[") or text in ("N/A", ""):
        return None
    return _number(text) if name in NUMBERS else text


def _number(text: str) -> Optional[int]:
    try:
        return int(float(text.split()[0]))
    except ValueError:
        return None
