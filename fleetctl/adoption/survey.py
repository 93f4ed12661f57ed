"""What ``servers.find`` saw on a host, as a draft of its inventory file. Pure."""

from __future__ import annotations

import re
from typing import Any

from fleetctl.adoption.draft import Draft, Found, Row, short, unique
from fleetctl.adoption.modes import DRAFTERS, Drafting, drafting
from fleetctl.adoption.slots import slot_of
from fleetctl.adoption.words import Parsed, known_engine, parse, text_of
from fleetctl.services.engines import Arguments

VENV = re.compile(r"/[A-Za-z0-9._/+:@=-]+")
UNIT = re.compile(r"[A-Za-z0-9:_.@-]{1,240}\.service")
MODEL_ARGUMENTS = ("model-path", "model")
PLACES = (*MODEL_ARGUMENTS, *DRAFTERS)
RELATIVE = re.compile(
    r"\.{1,2}/.*|[\w.-]+(?:/[\w.-]+)+|[\w-]+\.(?:jinja|json|ya?ml|txt|pt|safetensors)", re.ASCII
)
OWN_VARIABLES = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "VIRTUAL_ENV", "CONDA_PREFIX", "MASTER_PORT"}
STANDARD_VARIABLES = {"PYTHONUNBUFFERED", "PATH"}


def survey(host: str, ssh: dict[str, Any], seen: Found) -> Draft:
    """The draft of a host's file: running servers, those whose GPUs are certain first; then units that stand by."""
    draft = Draft(host, dict(ssh), reserved={_stem(name) for name in seen["units"]})
    _gpus(draft, seen["gpus"])
    units: dict[str, Found] = dict(seen["units"])
    several = _shared_units(seen["servers"])
    for server in sorted(seen["servers"], key=lambda server: (not server["gpus"], server["port"] or 0)):
        unit = server["unit"] if server["unit"] in units and server["unit"] not in several else None
        if server["unit"] in several:
            server = {**server, "shares": server["unit"]}
        _server(draft, server, unit, units.get(unit or ""))
        units.pop(unit or "", None)
    for name, unit in units.items():
        if name not in several and unit["command"] is not None:
            _standby(draft, name, unit)
    if not draft.rows:
        draft.note(("slots",), "nothing that serves models was found; a slot: NAME: {gpus: [0], port: 30000}")
    for unseen in seen["unseen"]:
        draft.left.append(f"Not seen: {unseen}.")
    if seen["unasked"]:
        ports = ", ".join(str(port) for port in seen["unasked"])
        draft.left.append(f"Ports that are open and were not asked whether they serve models: {ports}.")
    return draft


def _stem(unit: str) -> str:
    return unit.removesuffix(".service").removeprefix("fleetctl-")


def _gpus(draft: Draft, answer: Found) -> None:
    gpus = answer["gpus"]
    draft.gpus = {"count": len(gpus)}
    if answer["error"]:
        draft.note(("gpus",), f"nvidia-smi: {answer['error']}")
    known = [gpu for gpu in gpus if gpu["name"]]
    if not known:
        return
    first = known[0]
    draft.gpus["name"] = first["name"]
    if first["compute_cap"]:
        draft.gpus["arch"] = f"sm{first['compute_cap'].replace('.', '')}"
    if first["memory_total_mib"]:
        draft.gpus["memory_mib"] = first["memory_total_mib"]
    for gpu in gpus:
        if not gpu["name"] or not gpu["memory_total_mib"]:
            draft.note(("gpus",), f"GPU {gpu['index']} does not answer nvidia-smi")
        elif gpu["name"] != first["name"]:
            draft.note(("gpus",), f"GPU {gpu['index']} is another kind: {gpu['name']}")


def _shared_units(servers: list[Found]) -> set[str]:
    names = [server["unit"] for server in servers if server["unit"]]
    return {name for name in names if names.count(name) > 1}


def _server(draft: Draft, server: Found, unit_name: str | None, unit: Found | None) -> None:
    what = unit_name or f"pid {server['pid']}"
    label = server["engine"] if server["engine"] != "other" else server["launcher"] or "other"
    parsed = parse(server["arguments"], server["engine"])
    drafts = drafting(server["engine"], parsed.given)
    row = Row(what, label, port=str(server["port"] or "-"))
    draft.rows.append(row)
    server = {**server, "container": server["container"] or server["launcher"] == "docker-proxy"}
    refused = _refusal(server, unit_name, unit)
    if refused:
        where = f"port {server['port']}" if server["port"] else "no known port"
        draft.left.append(f"{what} ({label}) on {where}: {refused}")
        if server["port"] and not server["container"]:
            row.gpus = _shown(draft.slots[slot_of(draft, server, "")]["gpus"])
        return
    wanted = _stem(unit_name) if unit_name else f"{label}-{server['port']}"
    own = (unit or {}).get("fleetctl") or {}
    taken = draft.services if unit_name else [*draft.services, *draft.reserved]
    name = unique(own.get("Service") or wanted, taken)
    slot = slot_of(draft, server, own.get("Slot", ""))
    _service(draft, row, name, slot, server, parsed, drafts, unit_name, unit)
    if unit is None:
        _bare(draft, name, server)
    if len([one for one in draft.services.values() if one["slot"] == slot]) > 1:
        draft.note(("services", name), "another process runs on the same port")
    answer = server["answer"]
    if answer["error"]:
        draft.note(("services", name), f"asked for /v1/models: {answer['error']}")
    if answer["info"].get("version"):
        draft.note(("services", name), f"sglang {answer['info']['version']}")


def _standby(draft: Draft, unit_name: str, unit: Found) -> None:
    """A unit that would serve, and does not now."""
    command = unit["command"]
    label = command["engine"]
    parsed = parse(command["arguments"], label)
    row = Row(f"{unit_name} ({unit['active'] or 'no instance'})", label, port=str(command["port"] or "-"))
    draft.rows.append(row)
    place = {**command, "gpus": [], "variables": unit["variables"], "unit": unit_name, "pid": None}
    place.update({"container": False, "seen": True, "answer": {"models": [], "info": {}, "error": None}})
    refused = _refusal(place, unit_name, unit)
    if refused:
        draft.left.append(f"{unit_name} ({label}, not running): {refused}")
        return
    own = unit["fleetctl"]
    name = unique(own.get("Service") or _stem(unit_name), draft.services)
    slot = slot_of(draft, place, own.get("Slot", ""))
    _service(draft, row, name, slot, place, parsed, drafting(label, parsed.given), unit_name, unit)
    draft.note(("services", name), f"not running when it was looked at ({unit['active'] or 'unknown'})")


def _refusal(server: Found, unit_name: str | None, unit: Found | None) -> str:
    """Why no service can be written of a server; empty where one can."""
    if server["container"]:
        return "it runs in a container; fleetctl manages systemd units, and would need one that starts it"
    if server.get("shares"):
        return f"{server['shares']} starts several servers at once; give each a unit of its own"
    if not server["port"]:
        return "its arguments name no port, and it listens on none"
    if unit_name and "@." in unit_name:
        return "a template of units without an instance that runs"
    if unit_name and not UNIT.fullmatch(unit_name):
        return "the unit's name has characters that an inventory does not take"
    if unit is None and server["engine"] not in ("sglang", "standalone"):
        return (
            "no unit starts it, and fleetctl cannot write one for a server of this kind; it holds its port, so "
            "the slot can be deployed to once it has a unit, or has stopped"
        )
    environment = (server["environment"] or {}).get("path")
    if environment and not VENV.fullmatch(environment):
        return f"the path of its environment has characters that a unit would have to quote: {environment}"
    if server["engine"] in ("sglang", "standalone") and not environment:
        return "the Python that it runs on could not be found out"
    return ""


def _service(
    draft: Draft,
    row: Row,
    name: str,
    slot: str,
    server: Found,
    parsed: Parsed,
    drafts: Drafting,
    unit_name: str | None,
    unit: Found | None,
) -> None:
    key = ("services", name)
    path = (server["environment"] or {"path": "/usr"})["path"]
    environment = draft.place("environment", path, short(path) if path != "/usr" else "system")
    kind = (server["environment"] or {"kind": "none"})["kind"]
    if kind in ("venv", "conda"):
        draft.pythons[environment] = path
    if kind != "venv":
        origin = "not a Python server: what stands here is not used" if kind == "none" else f"{kind} Python"
        draft.note(("environments", environment), origin)
    model = _model(draft, name, server, parsed)
    engine = known_engine(server["engine"])
    service: dict[str, Any] = {
        "slot": slot,
        "engine": engine,
        "mode": drafts.mode,
        "environment": environment,
        "model": model,
    }
    if drafts.drafter:
        service["drafter"] = _path_of(draft, name, drafts.drafter, server)
    if drafts.note:
        draft.note(key, drafts.note)
    served = text_of(parsed.given, "served-model-name") or next(iter(server["answer"]["models"]), None)
    served = served or _usual_name(server["engine"], parsed)
    if served and served != model:
        service["model_id"] = served
    if unit_name:
        service["unit"] = unit_name
    draft.services[name] = service
    given = _rooted(parsed.given, server["paths"])
    draft.given[name] = {"arguments": given, "engine": server["engine"]}
    variables = (unit or server)["variables"]
    _variables(draft, name, variables, unit is not None)
    _said(draft, name, parsed, server)
    if unit is not None:
        _unit(draft, name, unit)
    else:
        _relative(draft, name, server, given)
    row.mode, row.gpus = drafts.mode, _shown(draft.slots[slot]["gpus"])
    row.environment, row.model, row.service = path, draft.models[model]["path"], name


def _rooted(given: Arguments, paths: Found) -> Arguments:
    """The arguments with the places of models as paths from / on, where they were relative."""
    rooted = dict(given)
    for name in PLACES:
        word = text_of(given, name)
        if word and word in paths and not word.startswith("/") and paths[word]["path"].isprintable():
            rooted[name] = paths[word]["path"]
    return rooted


def _relative(draft: Draft, name: str, server: Found, given: Arguments) -> None:
    """Comments on arguments that mean another file once a unit starts the service in /."""
    for argument, value in given.items():
        words = [word for word in (value if isinstance(value, list) else [value]) if isinstance(word, str)]
        found = [word for word in words if word in server["paths"] or RELATIVE.fullmatch(word)]
        found = [word for word in found if not word.startswith("/") and word not in server["hub"]]
        if found and argument != "served-model-name":
            where = server["cwd"] or "a folder that could not be read"
            note = f"{argument} may name files in {where}, where it was started; a unit starts in /"
            draft.note(("services", name), f"{note}: write them from / on")


def _usual_name(engine: str, parsed: Parsed) -> str | None:
    """The name that a server gives its model where no argument does."""
    given = next((text for one in MODEL_ARGUMENTS if (text := text_of(parsed.given, one))), None)
    return given.rstrip("/").rpartition("/")[2] if given and engine == "standalone" else given


def _model(draft: Draft, name: str, server: Found, parsed: Parsed) -> str:
    info = server["answer"]["info"]
    given = next((text for one in MODEL_ARGUMENTS if (text := text_of(parsed.given, one))), None)
    if not given and server["engine"] == "vllm" and parsed.rest:
        given = parsed.rest[0]
    given = given or info.get("model_path")
    if given:
        return _path_of(draft, name, str(given), server)
    there = [
        place["path"] for place in server["paths"].values() if place["exists"] and place["path"].isprintable()
    ]
    path = there[0] if there else "/"
    model = draft.place("model", path, next(iter(server["answer"]["models"]), None) or short(path))
    draft.note(("models", model), f"not told by the arguments of {name}: correct the path")
    return model


def _path_of(draft: Draft, service: str, word: str, server: Found) -> str:
    """The entry in ``models`` of a path, or of a name that was downloaded."""
    place = server["paths"].get(word)
    if place and place["path"].isprintable():
        model = draft.place("model", place["path"], short(word))
        if not place["exists"]:
            draft.note(("models", model), "not there when it was looked at")
        return model
    if word in server["hub"]:
        model = draft.place("model", server["hub"][word], short(word))
        draft.note(("models", model), f"{word}, as it was downloaded")
        return model
    path = word if word.startswith("/") else f"/{word}"
    path = "".join(character if character.isprintable() else "?" for character in path)
    model = draft.place("model", path, short(word))
    where = f"{service} names it {word}"
    draft.note(("models", model), f"{where}; where it lies on the host is not known: correct the path")
    return model


def _variables(draft: Draft, name: str, variables: Found, from_unit: bool) -> None:
    left_out = OWN_VARIABLES | STANDARD_VARIABLES
    kept = {
        one: value
        for one, value in variables.items()
        if value is not None and one not in left_out and re.fullmatch(r"[A-Za-z_]\w*", one, re.ASCII)
    }
    if kept:
        draft.services[name]["env"] = kept
    hidden = [one for one, value in variables.items() if value is None]
    if hidden:
        draft.note(
            ("services", name), f"has secrets, whose values were left where they are: {', '.join(hidden)}"
        )
    if not from_unit and kept:
        draft.note(("services", name, "env"), "of the process's variables those that matter to such servers")


def _said(draft: Draft, name: str, parsed: Parsed, server: Found) -> None:
    key = ("services", name)
    secrets = list(dict.fromkeys([*parsed.secrets, *(one.lstrip("-") for one in server["secrets"])]))
    if secrets:
        draft.note(key, f"given with a value that was left where it is: {', '.join(secrets)}")
    rest = parsed.rest[1:] if server["engine"] == "vllm" else parsed.rest
    if rest and server["engine"] != "other":
        draft.note(key, f"args cannot say these words of its command line: {' '.join(rest)[:300]}")
    if parsed.twice:
        draft.note(key, f"given more than once, the last one stands here: {', '.join(parsed.twice)}")


def _unit(draft: Draft, name: str, unit: Found) -> None:
    """The unit's own text, or why it is only kept; and all of it that one text does not say."""
    key = ("services", name)
    if unit["text"] is None or any(part in unit["fragment"] for part in ("/transient/", "/generator")):
        draft.services[name]["keep_unit"] = True
        named = ", ".join(unit["secrets"])
        why = (
            f"secrets ({named}) stand in its file"
            if named
            else f"it has no file to copy ({unit['fragment']})"
        )
        draft.note(key, f"its unit stays as it is on the host, and is not copied: {why}")
    else:
        draft.units[name] = unit["text"]
    if "/transient/" in unit["fragment"]:
        draft.note(key, "started by systemd-run: once it has stopped, nothing can start it again")
    if unit["drop_ins"]:
        draft.note(key, f"drop-ins on the host change its unit: {', '.join(unit['drop_ins'])}")
    if unit["environment_files"]:
        draft.note(
            key, f"reads variables from {', '.join(unit['environment_files'])}, which was not looked into"
        )
    if unit["exec_starts"] > 1:
        draft.note(key, f"its unit has {unit['exec_starts']} ExecStart lines; what runs is described here")
    if unit["shell"]:
        draft.note(key, f"its unit starts it through a shell: {unit['shell']}")
    if unit["enabled"] not in ("enabled", "static", "transient", ""):
        draft.note(key, f"{unit['enabled']}: a reboot does not start it; a deploy would enable it")
    if unit["enabled"] == "static":
        draft.note(key, "its unit has no [Install]: nothing starts it at boot")


def _bare(draft: Draft, name: str, server: Found) -> None:
    key = ("services", name)
    started = f"no unit starts pid {server['pid']} ({server['cgroup'] or 'no control group'}), which runs as "
    draft.note(
        key,
        f"{started}{server['user']}: deploy would write a unit, and refuses while that process holds the port",
    )
    if server["engine"] == "sglang" and server["launcher"] != "python -m sglang.launch_server":
        draft.note(key, f"started as `{server['launcher']}`; fleetctl starts python -m sglang.launch_server")
    if server["options"]:
        draft.note(key, f"the interpreter's own options are left out: {' '.join(server['options'])}")


def _shown(gpus: list[int]) -> str:
    return ",".join(str(gpu) for gpu in gpus) or "-"
