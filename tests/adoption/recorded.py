"""Servers and units as ``servers.find`` describes them, in small."""

from __future__ import annotations

import shlex
from typing import Any

from fleetctl.agent import secrets
from fleetctl.agent.host import serving
from fleetctl.agent.units import unitfile

Json = dict[str, Any]

GPU = {"name": "NVIDIA RTX PRO 6000", "compute_cap": "12.0", "memory_total_mib": 97887}
VENV = {
    "path": "/root/venv_sglang211",
    "kind": "venv",
    "version": "3.12",
    "from": "its command line",
    "python": True,
}
DFLASH = (
    "/root/venv_sglang211/bin/python -m sglang.launch_server --model-path /dev/shm/Qwen3.6-27B --port 30001 "
    "--host 0.0.0.0 --attention-backend triton --grammar-backend none --page-size 1 --disable-cuda-graph "
    "--speculative-algorithm DFLASH --speculative-draft-model-path /dev/shm/Qwen3.6-27B-DFlash"
)
DDTREE = DFLASH.replace("DFLASH", "DDTREE") + (
    " --speculative-ddtree-budget 15 --speculative-ddtree-topk 8 --speculative-ddtree-mode tree"
)


def server(command: str, **more: Any) -> Json:
    """A running server with this command line."""
    words = shlex.split(command)
    found = serving.command(words) or serving.other(words[0], words[1:])
    arguments, hidden = secrets.without(found["arguments"])
    port = more.pop("port", serving.port_of(found))
    paths = {
        word: {"path": word, "exists": True, "kind": "folder", "bytes": 1}
        for word in arguments
        if word and word.startswith("/")
    }
    answer = {"status": 200, "models": [], "info": {}, "error": None, **more.pop("answer", {})}
    return {
        **found,
        "arguments": arguments,
        "secrets": hidden,
        "pid": 100,
        "since": 0,
        "user": "root",
        "unit": None,
        "cgroup": "session-3.scope",
        "container": False,
        "cwd": "/root",
        "exe": "/usr/bin/python3.12",
        "environment": VENV,
        "variables": {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        "seen": True,
        "port": port,
        "listens": [port],
        "gpus": [],
        "paths": paths,
        "hub": {},
        "answer": answer,
        **more,
    }


def unit(text: str, name: str = "x.service", **more: Any) -> Json:
    """A unit with this text."""
    found = unitfile.settings([text])
    lines = [
        unitfile.exec_words(line, name, unitfile.variables(found)) for line in found.get("ExecStart", [])
    ]
    command = next((one for one in map(serving.command_within, lines) if one), None)
    if command:
        like = server(shlex.join([command["program"], *lines[0][1:]]))
        command = {**like, "port": serving.port_of(command)}
    hidden = secrets.within(text)
    return {
        "fragment": f"/etc/systemd/system/{name}",
        "text": None if hidden else text,
        "drop_ins": [],
        "secrets": hidden,
        "active": "active",
        "enabled": "enabled",
        "exec_starts": len(lines),
        "shell": None,
        "command": command,
        "variables": unitfile.variables(found),
        "environment_files": [],
        "stop_s": (found.get("TimeoutStopSec") or [""])[-1],
        "start_limit_s": (unitfile.settings([text], "Unit").get("StartLimitIntervalSec") or [""])[-1],
        "fleetctl": {key: values[-1] for key, values in unitfile.settings([text], "X-Fleetctl").items()},
        **more,
    }


def text_of(command: str) -> str:
    """A unit's text that starts a command."""
    return f"[Service]\nExecStart={command}\n\n[Install]\nWantedBy=multi-user.target\n"


def seen(*servers: Json, gpus: int = 8, units: Json | None = None, **more: Any) -> Json:
    """The answer of ``servers.find`` on a host with these servers."""
    cards = [{"index": index, **GPU} for index in range(gpus)]
    return {
        "hostname": "dflash-train",
        "uid": 0,
        "servers": list(servers),
        "units": units or {},
        "gpus": {"gpus": cards, "apps": [], "error": None},
        "unasked": [],
        "unseen": [],
        **more,
    }
