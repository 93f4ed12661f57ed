"""What another host sends: an environment, or single distributions as *parts*; each appears whole or not at all.

rsync writes into ``<path>.partial``, which stays after a broken copy so that the next one goes on. A part holds
one distribution's files as site-packages does, and what its RECORD names outside of it (``bin``) beside them.
"""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Set, Tuple

from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.files import sync_folder
from fleetctl.agent.staging import disk_errors, free_bytes, sync

PARTIAL = ".partial"
REFERENCES = 4
Emit = Callable[[Dict[str, Any]], None]


def status(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Which of ``paths`` are not there, and whole folders of the same ``name`` beside the first, newest first."""
    paths = [Path(path) for path in args["paths"]]
    folder = paths[0].parent
    beside = [path for path in folder.glob("*-*") if path.name.rpartition("-")[0] == args.get("name")]
    whole = [path for path in beside if path.is_dir() and path.suffix != PARTIAL and path not in paths]
    whole.sort(key=lambda path: path.stat().st_ctime, reverse=True)
    return {
        "missing": [str(path) for path in paths if not path.is_dir()],
        "references": [str(path) for path in whole[:REFERENCES]],
        "free_bytes": free_bytes(folder),
    }


def commit(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Give ``<path>.partial`` its name, or remove it where ``path`` is there."""
    path = Path(args["path"])
    with disk_errors(path, 0):
        _commit(path)
    return {"path": str(path)}


def names(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """What the RECORDs of ``infos`` in the folder ``path`` name: ``{"inside", "beside"}``.

    ``inside`` is relative to site-packages, which lies at ``lead`` in its environment, ``beside`` relative to
    the environment. Byte code is left out. AgentError (exit 5) for a RECORD that points out of it.
    """
    inside: Set[str] = set()
    beside: Set[str] = set()
    for info in args["infos"]:
        for is_inside, name in _rows(Path(args["path"]), args["lead"], info):
            (inside if is_inside else beside).add(name)
    return {"inside": sorted(inside), "beside": sorted(beside)}


def split(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Make parts of the distributions sent into ``path``, which goes then.

    ``parts`` is part folder → name of its ``.dist-info``; ``lead`` as in :func:`names`. AgentError (exit 5)
    where a file is missing or the disk refuses.
    """
    sent = Path(args["path"])
    with disk_errors(sent, 0):
        for part, info in args["parts"].items():
            final = Path(part)
            draft = final.with_name(final.name + PARTIAL)
            shutil.rmtree(draft, ignore_errors=True)
            for _, name in _rows(sent, args["lead"], info):
                target = draft / name
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(sent / name, target, follow_symlinks=False)
                except FileExistsError:
                    continue
                except FileNotFoundError:
                    raise _refused(sent / name, "was not sent") from None
            _commit(final)
        shutil.rmtree(sent, ignore_errors=True)
    return {"parts": sorted(args["parts"])}


def _commit(path: Path) -> None:
    draft = path.with_name(path.name + PARTIAL)
    if path.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
        return
    if not draft.is_dir():
        raise _refused(draft, "is not there")
    sync(draft)
    draft.rename(path)
    sync_folder(path.parent)


def _rows(packages: Path, lead: str, info: str) -> List[Tuple[bool, str]]:
    """Whether inside site-packages, and the path; its RECORD too, whether or not it names itself."""
    record = packages / info / "RECORD"
    found = {(True, f"{info}/RECORD")}
    try:
        with record.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            paths = [line[0] for line in csv.reader(file) if line]
    except (OSError, csv.Error) as error:
        raise _refused(record, f"cannot be read: {error}") from None
    for path in paths:
        place = os.path.normpath(os.path.join(lead, path))  # noqa: PTH118
        if os.path.isabs(place) or place.split("/")[0] == ".." or "\0" in place:  # noqa: PTH117
            raise _refused(record, f"points out of the environment: {path!a}")
        is_inside = place.startswith(lead + "/")
        if not place.endswith(".pyc"):
            found.add((is_inside, place[len(lead) + 1 :] if is_inside else place))
    return sorted(found)


def _refused(path: Path, what: str) -> AgentError:
    return AgentError(
        what,
        where=ascii(str(path))[1:-1],
        fix="see what is there with `fleetctl env verify`, and take it from another environment",
        exit=PREFLIGHT,
    )
