"""Remove environments that nothing uses, and say what each one's removal would free."""

from __future__ import annotations

import difflib
import glob
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List

from fleetctl.agent.environment.environments import environments
from fleetctl.agent.environment.sizes import CACHE, cache_links, sizes, trees, unused_packages
from fleetctl.agent.environment.staging import SUFFIX, leftovers, remove_leftovers
from fleetctl.agent.environment.users import PROC, UNITS, users
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.files import read_json, sync_folder
from fleetctl.agent.paths import MARKER, ROOT

CLEAN_S = 120.0
Emit = Callable[[Dict[str, Any]], None]


def prune(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Remove the environments ``names`` (folder names, paths, or names that one has alone), or all that nothing uses.

    ``args``: ``names`` or None, ``keep`` (of each name's unused ones the newest so many stay; only without
    ``names``), ``plan`` (change nothing), ``root``?, ``units``? (folders), ``proc``?. Result: ``{"removed":
    [ENV], "kept": [ENV], "leftovers": [{"path", "own_bytes"}], "freed_bytes"}`` with ENV ``{"path", "name",
    "digest", "built_at", "used_by": [text], "own_bytes", "shared_bytes"}``. Used is what a slot runs or ran
    before, what a unit file names, and what a process has mapped. Without ``names`` what killed builds and
    transfers that broke off have left (``leftovers``) goes too. Raises :class:`AgentError` (exit 5) when one of
    ``names`` is used, 2 when one is not there or is the name of several; then nothing is removed.
    """
    root = Path(args.get("root", ROOT))
    found = survey(root, args.get("units", UNITS), args.get("proc", PROC))
    names, keep = args.get("names"), int(args.get("keep") or 0)
    going = _named(found, names) if names else _unused(found, keep)
    paths = {one["path"] for one in going}
    left = [] if names else [*leftovers(root / "envs"), *leftovers(root / "incoming", "*")]
    cached = cache_links(root)
    freed = sizes(trees([*map(Path, sorted(paths)), *left]), cached)["own_bytes"]
    listed = [{"path": str(path), "own_bytes": sizes(trees([path]), cached)["own_bytes"]} for path in left]
    if not args.get("plan"):
        for one in going:
            _remove(Path(one["path"]))
            emit({"step": "prune", "state": "ok", "text": f"removed {one['path']}"})
        for path in left:
            if remove_leftovers(path.parent, glob.escape(path.name)):
                if path.exists():
                    shutil.rmtree(path)
                emit({"step": "prune", "state": "ok", "text": f"removed {path}"})
        _clean_cache(root)
    return {
        "removed": going,
        "kept": [one for one in found if one["path"] not in paths],
        "leftovers": listed,
        "freed_bytes": freed,
    }


def survey(root: Path, units: Iterable[str] = UNITS, proc: str = PROC) -> List[Dict[str, Any]]:
    """Each environment with its sizes and who uses it, oldest first."""
    found = {tree.root: tree for tree in trees(environments(root))}
    used, cached = users(root, list(found), units, proc), cache_links(root)
    listed = []
    for path, tree in found.items():
        content = read_json(Path(path, MARKER)) or {}
        keys = {key: content.get(key) for key in ("name", "digest", "built_at")}
        listed.append({"path": path, **keys, "used_by": used.get(path, []), **sizes([tree], cached)})
    return sorted(listed, key=lambda one: (one["built_at"] or "", one["path"]))


def _named(found: List[Dict[str, Any]], names: List[str]) -> List[Dict[str, Any]]:
    going = []
    for name in names:
        meant = [one for one in found if name in (one["name"], os.path.basename(one["path"]), one["path"])]
        if not meant:
            raise AgentError(f"no environment {name}", fix=_nearest(name, found))
        if len(meant) > 1:
            raise AgentError(
                f"which {name}? There are {len(meant)} environments of that name",
                fix=f"write the digest too, such as {os.path.basename(meant[0]['path'])}",
                evidence=[_described(one) for one in meant],
            )
        going += meant
    used = [one for one in going if one["used_by"]]
    if used:
        raise AgentError(
            f"in use: {', '.join(os.path.basename(one['path']) for one in used)}",
            where=used[0]["path"],
            fix="deploy or swap to another one first; a slot's previous one is what a rollback needs",
            evidence=[f"{one['path']}: {user}" for one in used for user in one["used_by"]],
            exit=PREFLIGHT,
        )
    return list({one["path"]: one for one in going}.values())


def _nearest(name: str, found: List[Dict[str, Any]]) -> str:
    folders = [os.path.basename(one["path"]) for one in found]
    near = difflib.get_close_matches(name, [*folders, *(str(one["name"]) for one in found)], n=1)
    there = f"there are: {', '.join(folders) or 'none'}"
    return f"did you mean {near[0]}? ({there})" if near else there


def _described(one: Dict[str, Any]) -> str:
    return f"{one['path']}, built {one['built_at']}, used by {', '.join(one['used_by']) or 'nothing'}"


def _unused(found: List[Dict[str, Any]], keep: int) -> List[Dict[str, Any]]:
    unused = [one for one in found if not one["used_by"]]
    by_name: Dict[Any, List[Dict[str, Any]]] = {}
    for one in unused:
        by_name.setdefault(one["name"], []).append(one)
    staying = {id(one) for group in by_name.values() for one in group[len(group) - keep :]} if keep else set()
    return [one for one in unused if id(one) not in staying]


def _remove(path: Path) -> None:
    """Under another name first, so that half of it is never taken for an environment."""
    doomed = path.with_name(f"{path.name}.removed{SUFFIX}")
    path.rename(doomed)
    sync_folder(path.parent)
    shutil.rmtree(doomed)


def _clean_cache(root: Path) -> None:
    """Have uv forget the packages that no environment has any more; without uv they stay."""
    names = sorted(unused_packages(root))
    for uv in sorted((root / "tools").glob("uv-*"))[:1] if names else ():
        variables = {
            "PATH": os.environ.get("PATH", ""),
            "UV_CACHE_DIR": str(root / CACHE),
            "UV_NO_CONFIG": "1",
        }
        argv = [str(uv), "-q", "cache", "clean", *names]
        subprocess.run(argv, env=variables, timeout=CLEAN_S, check=False, capture_output=True)
