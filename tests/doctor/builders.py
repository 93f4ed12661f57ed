"""Facts, bills of materials and services of a healthy host, to which a case adds what is wrong with its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from fleetctl.doctor.rule import Context, ServiceView
from tests.environment import boms

Json = dict[str, Any]
ENVIRONMENT = "/root/ml-env"
MODEL = "/dev/shm/Qwen3.6-27B"
DRAFTER = "/root/models/Qwen3.6-27B-DFlash"
GIB = 1 << 30
CONFIG = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "full_attention_interval": 4,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}
DRAFTER_CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "num_hidden_layers": 5,
    "block_size": 16,
    "max_position_embeddings": 262144,
    "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [1, 16, 31, 46, 61]},
}


def facts(changes: Mapping[str, Any] | None = None) -> Json:
    """A healthy host with two RTX PRO 6000 (SM 12.0), driver 580 and CUDA 13.0, with ``changes`` laid over.

    ``gpus``: a list of capabilities or of changed keys, one a card (or the facts' own object, laid over);
    ``toolkits``: a list of versions or of changed keys; ``apps``: a list, put at its place in ``gpus``. Of the
    rest mappings are laid over key by key and other values replace.
    """
    given = dict(changes or {})
    made = _healthy()
    cards = given.pop("gpus", None)
    if isinstance(cards, list):
        made["gpus"]["gpus"] = [gpu(index, each) for index, each in enumerate(cards)]
        pairs = [(a, b) for a in range(len(cards)) for b in range(a + 1, len(cards))]
        made["topology"]["links"] = {f"{a}-{b}": "NODE" for a, b in pairs}
    elif cards is not None:
        given["gpus"] = cards
    if "apps" in given:
        made["gpus"]["apps"] = given.pop("apps")
    if isinstance(given.get("toolkits"), list):
        made["toolkits"] = [toolkit(each, n == 0) for n, each in enumerate(given.pop("toolkits"))]
    return lay_over(made, given)


def gpu(index: int, changes: str | Mapping[str, Any] = "12.0") -> Json:
    """One healthy, idle card."""
    given = {"compute_cap": changes} if isinstance(changes, str) else dict(changes)
    card = {
        "index": index,
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "uuid": f"GPU-00000000-0000-0000-0000-{index:012d}",
        "driver_version": "580.159.04",
        "memory_total_mib": 97887,
        "memory_used_mib": 4,
        "memory_free_mib": 97247,
        "compute_cap": "12.0",
        "bus_id": f"00000000:{index + 1:02X}:00.0",
        "ecc_uncorrected": 0,
        "retired_pages": 0,
        "temperature": 34,
        "power_w": 30.0,
        "pstate": "P8",
        "persistence": True,
        "mig": None,
        "state": "ok",
        "said": "",
    }
    return lay_over(card, given)


def toolkit(changes: str | Mapping[str, Any], default: bool = True) -> Json:
    """A CUDA toolkit in its usual place."""
    given = {"version": changes} if isinstance(changes, str) else dict(changes)
    version = str(given["version"])
    made = {"path": f"/usr/local/cuda-{version}", "version": version, "nvcc": f"{version}.88"}
    return lay_over({**made, "default": default}, given)


def bom(changes: Mapping[str, Any] | None = None) -> Json:
    """The reference environment (torch 2.11.0+cu130, sglang 0.5.11), or with ``from: training`` the half-patched
    one, with ``changes`` laid over.

    ``distributions``: name → version, changed keys, or null where it is missing; ``extensions``: path → changed
    keys or null; new ones get defaults. ``unowned``, ``twice``, ``abi``, ``python``, … as in the BOM.
    """
    given = dict(changes or {})
    made = boms.training() if given.pop("from", "reference") == "training" else boms.reference()
    found = {one["name"]: one for one in made["distributions"]}
    for name, change in (given.pop("distributions", None) or {}).items():
        if change is None:
            found.pop(name, None)
            made["extensions"] = [one for one in made["extensions"] if one["distribution"] != name]
            continue
        change = change if isinstance(change, Mapping) else {"version": str(change)}
        found[name] = lay_over(found.get(name) or _distribution(name), change)
    made["distributions"] = [found[name] for name in sorted(found)]
    libraries = {one["path"]: one for one in made["extensions"]}
    for path, change in (given.pop("extensions", None) or {}).items():
        if change is None:
            libraries.pop(path, None)
        else:
            libraries[path] = lay_over(libraries.get(path) or _extension(path), change)
    made["extensions"] = list(libraries.values())
    return lay_over(made, given)


def service(changes: Mapping[str, Any] | None = None) -> ServiceView:
    """A service of the reference host: SGLang with DFLASH on GPU 0; ``arguments`` and ``variables`` are laid over,
    a null takes one out."""
    made: Json = {
        "name": "dflash",
        "engine": "sglang",
        "mode": "linear",
        "unit": "sglang-dflash.service",
        "port": 30001,
        "gpus": [0],
        "arguments": {
            "model-path": MODEL,
            "served-model-name": "qwen3.6-27b",
            "host": "0.0.0.0",
            "port": 30001,
            "attention-backend": "triton",
            "speculative-algorithm": "DFLASH",
            "speculative-draft-model-path": DRAFTER,
            "disable-radix-cache": True,
            "enable-metrics": True,
        },
        "variables": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"},
        "environment": ENVIRONMENT,
        "model": MODEL,
        "drafter": DRAFTER,
    }
    given = dict(changes or {})
    if "gpus" in given:
        made["variables"]["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, given["gpus"]))
    made = lay_over(made, given)
    for part in ("arguments", "variables"):
        made[part] = {name: value for name, value in made[part].items() if value is not None}
    return ServiceView(**made)


def context(case: Mapping[str, Any]) -> Context | None:
    """What a case says of a host; None where it has a log alone. Its environment is also in the facts'."""
    if not {"facts", "bom", "service"} & case.keys():
        return None
    made = facts(case.get("facts"))
    environment = bom(case["bom"]) if "bom" in case else None
    view = service(case["service"]) if "service" in case else None
    if environment is not None:
        made["environments"] = {view.environment if view else environment["path"]: environment}
    return Context(made, environment, view)


def lay_over(base: Json, changes: Mapping[str, Any]) -> Json:
    """``base`` with mappings laid over key by key and every other value replaced."""
    made = copy.deepcopy(base)
    for key, value in changes.items():
        there = made.get(key)
        made[key] = (
            lay_over(there, value)
            if isinstance(there, dict) and isinstance(value, Mapping)
            else copy.deepcopy(value)
        )
    return made


def _healthy() -> Json:
    return {
        "schema": 1,
        "hostname": "ct200",
        "time": "2026-11-29T12:00:00.000+00:00",
        "os": {"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.3 LTS"},
        "kernel": "6.8.0-60-generic",
        "arch": "x86_64",
        "glibc": "2.39",
        "glibcxx": "3.4.33",
        "python": {"path": "/usr/bin/python3", "version": "3.12.3", "tag": "cp312"},
        "uptime_s": 86400.0,
        "gpus": {"gpus": [gpu(0), gpu(1)], "apps": [], "error": None},
        "driver": {"version": "580.159.04", "cuda": "13.0"},
        "toolkits": [toolkit("13.0")],
        "topology": {"links": {"0-1": "NODE"}, "iommu": False, "acs": False},
        "peer": None,
        "environments": {},
        "ptxas": {f"{ENVIRONMENT}/lib/python3.12/site-packages/triton/backends/nvidia/bin/ptxas": "12.9.86"},
        "models": {MODEL: _model(CONFIG, 54 * GIB, 12, "tmpfs"), DRAFTER: _model(DRAFTER_CONFIG, 3 * GIB, 1)},
        "kernel_log": {"xid": [], "oom": [], "nvrm": [], "error": None},
        "disks": [
            {
                "path": "/",
                "mount": "/",
                "fstype": "ext4",
                "free_bytes": 400 * GIB,
                "total_bytes": 900 * GIB,
                "free_inodes": 50_000_000,
            }
        ],
        "shm": {"free_bytes": 200 * GIB, "total_bytes": 256 * GIB},
        "memory": {"total": 512 * GIB, "available": 400 * GIB, "swap_total": 0},
        "cpus": 64,
        "numa_nodes": 2,
        "limits": {"agent": {"nofile": 1048576, "memlock": -1}},
        "libraries": {"libnuma.so.1": True, "libcuda.so.1": True, "libsndfile.so.1": True},
        "units": {},
        "ports": {},
        "slots": {},
        "paths": {},
        "deep": None,
        "errors": {},
    }


def _model(config: Json, size: int, shards: int, file_system: str = "ext4") -> Json:
    index = {"shards": shards, "missing": [], "short": []}
    kept = copy.deepcopy(config)
    return {
        "exists": True,
        "config": kept,
        "index": index,
        "bytes": size,
        "fs": file_system,
        "problems": [],
    }


def _distribution(name: str) -> Json:
    package = name.replace("-", "_")
    info = f"lib/python3.12/site-packages/{package}-0.dist-info"
    return {
        "name": name,
        "version": "0",
        "installer": "pip",
        "direct_url": None,
        "editable": None,
        "info": info,
        "files": 12,
        "bytes": 100_000,
        "requires": [],
        "imports": [package],
        "modules": {"": [package]},
        "record": {"state": "ok", "sha256": "0" * 64, "why": ""},
        "changed": [],
        "changed_count": 0,
        "missing": [],
        "missing_count": 0,
        "outside": [],
        "outside_count": 0,
    }


def _extension(path: str) -> Json:
    return {
        "path": path,
        "distribution": None,
        "soname": None,
        "needed": ["libc.so.6"],
        "rpath": ["$ORIGIN"],
        "tag": None,
        "machine": "x86_64",
        "glibc": "2.17",
        "glibcxx": "3.4.24",
        "cxx11": None,
        "cuda": None,
        "gpu": [],
        "missing": [],
        "undefined": [],
        "undefined_count": 0,
        "versions": [],
        "error": "",
    }
