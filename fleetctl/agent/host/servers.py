"""What serves models on this host: units and bare processes, looked at and never touched.

A process is asked over HTTP (on loopback, within a second) only where its command line says that it serves
models, names the port, or the port is one that such servers use; never a distributed job's ports.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from typing import Any, Callable, Dict, List, Optional, Set

from fleetctl.agent import secrets
from fleetctl.agent.errors import AgentError
from fleetctl.agent.host import gpus, interpreters, net, processes, serving
from fleetctl.agent.host.processes import Process
from fleetctl.agent.model import modelpaths
from fleetctl.agent.units import foundunits, systemd

Json = Dict[str, Any]

ASK_S = 1.0
MOST_ASKED = 32
FIRST_PORT = 1024
USUAL_PORTS = {1234, 5000, 8000, 8001, 8080, 8081, 11434, 30000, 30001}
INFO = ["version", "model_path", "served_model_name", "tp_size", "dp_size", "pp_size"]
INFO += ["speculative_algorithm", "speculative_draft_model_path", "attention_backend", "page_size"]


def find(args: Json, emit: Callable[[Json], None]) -> Json:
    """The ``servers.find`` of docs/architecture.md: ``{"servers", "units", "gpus", "unseen", …}``."""
    answers: Json = {}
    asking = threading.Thread(target=lambda: answers.update(gpus=_gpus()), daemon=True)
    asking.start()
    found = _Search()
    servers = found.servers()
    unseen = found.unseen()
    units: Json = {}
    try:
        units = foundunits.units([server["unit"] for server in servers if server["unit"]])
    except AgentError as error:
        unseen.append(f"units: {'; '.join([error.what, *error.evidence])}")
    asking.join(gpus.TIMEOUT_S + 5)
    gpu = answers.get("gpus") or {"gpus": [], "apps": [], "error": "nvidia-smi gave no answer"}
    for server in servers:
        family = set(server.pop("family"))
        apps = [app for app in gpu["apps"] if app["pid"] in family and app["gpu"] is not None]
        server["gpus"] = sorted({app["gpu"] for app in apps})
    return {
        "hostname": socket.gethostname(),
        "uid": os.getuid(),
        "servers": servers,
        "units": units,
        "gpus": gpu,
        "unasked": found.unasked,
        "unseen": unseen,
    }


def _gpus() -> Json:
    try:
        return gpus.query()
    except AgentError as error:
        return {"gpus": [], "apps": [], "error": error.what}


class _Search:
    """One look at the processes and at who listens where."""

    def __init__(self) -> None:
        self.processes = processes.table()
        self.listening = net.listening()
        holders = processes.sockets()
        self.holders = {
            port: {holders[inode] for inode in inodes if inode in holders}
            for port, inodes in self.listening.items()
        }
        self.logins = systemd.login_units()
        self.unasked: List[int] = []

    def servers(self) -> List[Json]:
        """Every server found, those of a known engine first, then others that answer as one."""
        known = {pid: found for pid, found in self._known().items() if not self._is_part(pid, found)}
        servers = [self._server(self.processes[pid], command) for pid, command in sorted(known.items())]
        _ask_all(servers)
        taken = {pid for server in servers for pid in server["family"]}
        others = self._others(taken | {os.getpid()})
        _ask_all(others)
        return [*servers, *(server for server in others if server["answer"]["models"])]

    def unseen(self) -> List[str]:
        """What this user may not see of the host."""
        said = []
        without = sorted(port for port, pids in self.holders.items() if not pids)
        if without:
            ports = ", ".join(str(port) for port in without[:20])
            said.append(f"who holds port {ports}: a process of another user or in another namespace")
        if os.getuid() != 0:
            hidden = [pid for pid in self.processes if not os.access(f"/proc/{pid}/environ", os.R_OK)]
            said.append(
                f"environment variables, working folders and sockets of {len(hidden)} processes of other users: "
                f"asked as uid {os.getuid()}, not as root"
            )
        return said

    def _known(self) -> Dict[int, Json]:
        found = {pid: serving.command(process.argv) for pid, process in self.processes.items()}
        return {pid: command for pid, command in found.items() if command is not None}

    def _is_part(self, pid: int, command: Json) -> bool:
        """Whether a server's process was started by another of the same server, or is a forked copy of it."""
        for parent in processes.ancestors(self.processes, pid):
            found = serving.command(self.processes[parent].argv)
            if found is not None and found["engine"] == command["engine"]:
                return True
        return False

    def _server(self, process: Process, command: Json) -> Json:
        family = processes.family(self.processes, process.pid)
        place = processes.place(process.pid)
        unit = None if place["container"] else systemd.unit_of(process.pid)
        unit = None if unit in self.logins else unit
        own = processes.variables(process.pid)
        cwd, exe = processes.link(process.pid, "cwd"), processes.link(process.pid, "exe")
        arguments, hidden = secrets.without(command["arguments"])
        ports = sorted(port for port, pids in self.holders.items() if pids & family)
        wanted = serving.port_of(command)
        port = wanted if wanted in ports or not ports or command["engine"] != "other" else ports[0]
        environment = None
        if place["container"]:
            pass  # its paths are not this host's
        elif command["engine"] != "other" or serving.PYTHON.fullmatch(command["program"].rpartition("/")[2]):
            environment = interpreters.environment(
                command["program"], command["script"], own or {}, cwd or "/", exe
            )
        return {
            **command,
            "arguments": arguments,
            "secrets": hidden,
            "pid": process.pid,
            "family": sorted(family),
            "since": processes.since(process),
            "user": processes.user(process.pid),
            "unit": unit,
            **place,
            "cwd": cwd,
            "exe": exe,
            "environment": environment,
            "variables": processes.shown(own or {}),
            "seen": own is not None,
            "port": port,
            "listens": ports,
            **modelpaths.described(arguments, cwd or "/", own or {}),
        }

    def _others(self, taken: Set[int]) -> List[Json]:
        """What listens and may be a server of another kind; ``unasked``: ports that were left alone."""
        found: List[Json] = []
        for port, pids in sorted(self.holders.items()):
            if pids & taken or port < FIRST_PORT:
                continue
            pid = min(pids) if pids else None
            if len(found) >= MOST_ASKED or not self._may_serve(port, pid):
                self.unasked.append(port)
                continue
            process = self.processes.get(pid or 0, Process(0, 0, 0, []))
            program = process.argv[0] if process.argv else ""
            server = self._server(process, serving.other(program, process.argv[1:]))
            server.update(port=port, pid=pid)
            found.append(server)
        return found

    def _may_serve(self, port: int, pid: Optional[int]) -> bool:
        if pid is not None and systemd.unit_of(pid) in self.logins:
            return False
        if pid is None:
            return port in USUAL_PORTS
        own = processes.variables(pid) or {}
        words = " ".join(self.processes[pid].argv) if pid in self.processes else ""
        if "MASTER_PORT" in own or "torchrun" in words or "torch.distributed" in words:
            return False
        return port in USUAL_PORTS or re.search(rf"\b{port}\b", words) is not None


def _ask_all(servers: List[Json]) -> None:
    threads = [threading.Thread(target=_ask, args=(server,), daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ask(server: Json) -> None:
    """``answer``: what the server says of itself on its port; nothing is asked where it does not listen there."""
    said: Json = {"status": None, "models": [], "info": {}, "error": None}
    server["answer"] = said
    port = server["port"]
    if port is None or (port not in server["listens"] and server["pid"]):
        said["error"] = "it does not listen yet" if port is not None else "no port is known"
        return
    said["status"], body = net.http("GET", port, "/v1/models", timeout=ASK_S)
    if said["status"] is None:
        said["error"] = body.decode(errors="replace")[:200]
    if said["status"] == 200:
        data = _json(body).get("data")
        entries = data if isinstance(data, list) else []
        said["models"] = [str(one["id"]) for one in entries if isinstance(one, dict) and "id" in one][:20]
    if server["engine"] != "sglang":
        return
    for path in ("/get_server_info", "/server_info"):
        status, body = net.http("GET", port, path, timeout=ASK_S)
        if status == 200:
            info = _json(body)
            said["info"] = {key: info[key] for key in INFO if isinstance(info.get(key), (str, int, float))}
            return


def _json(body: bytes) -> Json:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
