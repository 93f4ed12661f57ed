"""A host's facts on one screen. Pure; tolerant of facts that lack a part."""

from __future__ import annotations

from typing import Any

from fleetctl.doctor.facts import Facts, entries, gpus, pick

COLUMNS = ["gpu", "name", "cap", "memory MiB", "used by", "state"]
GIB = 1 << 30


def lines(facts: Facts) -> list[str]:
    """The host, its driver and toolkits, memory, disks, environments, models and what could not be read."""
    found = [_host(facts), _driver(facts), _memory(facts)]
    found += [_environment(path, bom) for path, bom in _items(facts, "environments")]
    found += [_model(path, model) for path, model in _items(facts, "models")]
    found += _kernel_log(facts)
    for one in entries(facts, "deep"):
        said = (
            f"ran in {one.get('seconds')} s ({one.get('by')})"
            if one.get("ok")
            else f"FAILED: {one.get('error')}"
        )
        found.append(f"kernel       GPU {one.get('gpu')}: {said}")
    errors = dict(_items(facts, "errors"))
    said = pick(facts, "gpus", "error")
    if said and "gpus" not in errors:
        errors = {"gpus": said, **errors}
    return found + [f"not read     {part}: {why}" for part, why in errors.items()]


def rows(facts: Facts) -> list[list[str]]:
    """A row of :data:`COLUMNS` for each GPU."""
    users: dict[Any, list[str]] = {}
    for app in entries(facts, "gpus", "apps"):
        who = app.get("unit") or f"{app.get('name')} (pid {app.get('pid')})"
        users.setdefault(app.get("gpu"), []).append(who)
    return [
        [
            _text(gpu.get("index")),
            _text(gpu.get("name")),
            _text(gpu.get("compute_cap")),
            f"{_text(gpu.get('memory_used_mib'))} of {_text(gpu.get('memory_total_mib'))}",
            ", ".join(dict.fromkeys(users.get(gpu.get("index"), []))) or "-",
            " ".join(filter(None, [gpu.get("state"), gpu.get("said")])) or "-",
        ]
        for gpu in gpus(facts)
    ]


def _host(facts: Facts) -> str:
    parts = [pick(facts, "os", "name"), f"kernel {facts.get('kernel')}", f"glibc {_text(facts.get('glibc'))}"]
    parts += [f"Python {pick(facts, 'python', 'version')}", f"{_text(facts.get('cpus'))} processors"]
    return f"host         {facts.get('hostname')}: " + ", ".join(str(part) for part in parts if part)


def _driver(facts: Facts) -> str:
    driver = pick(facts, "driver", "version")
    said = f"{driver}, up to CUDA {_text(pick(facts, 'driver', 'cuda'))}" if driver else "none"
    kits = [
        f"{one.get('version')} at {one.get('path')}{' (default)' if one.get('default') else ''}"
        for one in entries(facts, "toolkits")
    ]
    return f"driver       {said}; toolkits: {', '.join(kits) or 'none'}"


def _memory(facts: Facts) -> str:
    parts = [f"{_gib(pick(facts, 'memory', 'available'))} of {_gib(pick(facts, 'memory', 'total'))} GiB free"]
    parts.append(f"/dev/shm {_gib(pick(facts, 'shm', 'free_bytes'))} GiB free")
    parts += [
        f"{one.get('mount')} {_gib(one.get('free_bytes'))} GiB free"
        for one in entries(facts, "disks")
        if one.get("mount") != "/dev/shm"
    ]
    return "memory       " + ", ".join(parts)


def _environment(path: str, bom: Any) -> str:
    if not isinstance(bom, dict) or "error" in bom:
        return f"environment  {path}: {pick(bom, 'error', default='not read')}"
    tag = pick(bom, "abi", "tag", default="no ABI tag")
    return f"environment  {path}: {len(entries(bom, 'distributions'))} distributions, {bom.get('files')} files, {tag}"


def _model(path: str, model: Any) -> str:
    if not pick(model, "exists"):
        return f"model        {path}: not there"
    kind = pick(model, "config", "model_type", default="no config")
    wrong = pick(model, "problems", default=[])
    said = f"; {wrong[0]}" if wrong else ""
    return f"model        {path}: {kind}, {_gib(model.get('bytes'))} GiB on {_text(model.get('fs'))}{said}"


def _kernel_log(facts: Facts) -> list[str]:
    found = [
        f"kernel log   Xid {one.get('code')} of {one.get('bus_id')} at {_text(one.get('time'))}"
        for one in entries(facts, "kernel_log", "xid")[-3:]
    ]
    killed = entries(facts, "kernel_log", "oom")[-3:]
    return found + [
        f"kernel log   killed for want of memory: {one.get('name')} (pid {one.get('pid')})" for one in killed
    ]


def _items(facts: Facts, key: str) -> list[tuple[str, Any]]:
    found = facts.get(key)
    return list(found.items()) if isinstance(found, dict) else []


def _gib(size: Any) -> str:
    return f"{size / GIB:.1f}" if isinstance(size, int | float) else "?"


def _text(value: Any) -> str:
    return "?" if value is None else str(value)
