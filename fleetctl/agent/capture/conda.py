"""The packages of a conda environment, from ``conda-meta``: those that are no Python distributions too."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Sequence, Set

from fleetctl.agent.capture import wheel_record
from fleetctl.agent.capture.distributions import Distribution, canonical
from fleetctl.agent.capture.tree import Problems, Tree
from fleetctl.agent.capture.wheel_record import Entry, Record
from fleetctl.agent.files import read_start

LIMIT = 64 << 20
HEX = re.compile(r"[0-9a-f]{64}")


class CondaPackages:
    """``distributions``: packages that bring no Python distribution; ``owned``: every file of the others."""

    def __init__(self, tree: Tree, known: Sequence[Distribution], problems: Problems) -> None:
        self.distributions: List[Distribution] = []
        self.owned: Set[str] = set()
        infos = {one.info for one in known}
        for name in sorted(tree.folders.get("conda-meta", [])):
            if not name.endswith(".json"):
                continue
            said = _read(tree.absolute(f"conda-meta/{name}"))
            if said is None:
                problems.add(f"conda-meta/{name}", "is not a package's description")
                continue
            files = [path for path in said.get("files") or [] if isinstance(path, str)]
            if any(path.rpartition("/")[0] in infos for path in files):
                self.owned.update(files)
            else:
                self.distributions.append(_package(said, f"conda-meta/{name}", files))


def _read(path: str) -> Optional[Dict[str, Any]]:
    try:
        said = json.loads(read_start(path, LIMIT))
    except (OSError, ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) and isinstance(said.get("name"), str) else None


def _package(said: Dict[str, Any], info: str, files: Sequence[str]) -> Distribution:
    """A package as a distribution. Texts hold the prefix, so their digest there is another than the package's."""
    here: Dict[str, Entry] = {}
    packed: List[Entry] = []
    data = said.get("paths_data")
    listed = data.get("paths") if isinstance(data, dict) else None
    for one in listed if isinstance(listed, list) else []:
        path = one.get("_path") if isinstance(one, dict) else None
        if (
            not isinstance(path, str)
            or not path
            or path.endswith(".pyc")
            or wheel_record.UNUSUAL.search(path)
        ):
            continue
        original = _hash(one.get("sha256"))
        packed.append(Entry(path, "sha256" if original else "", original, -1))
        placed = _hash(one.get("sha256_in_prefix")) or original
        if one.get("path_type") == "softlink":
            placed = ""
        here[path] = Entry(path, "sha256" if placed else "", placed, -1)
    for path in files:
        if path and path not in here and not path.endswith(".pyc"):
            here[path] = Entry(path, "", "", -1)
    record = Record("ok" if packed else "missing", "" if packed else "it lists no digests", packed)
    return Distribution(
        name=canonical(said["name"]),
        version=str(said.get("version", "")),
        info=info,
        site="",
        installer="conda",
        direct_url=None,
        editable=None,
        requires=[],
        imports=[],
        record=record,
        record_sha256=wheel_record.record_sha256(record, info),
        owned=here,
        outside=[],
    )


def _hash(text: Any) -> str:
    return text if isinstance(text, str) and HEX.fullmatch(text) else ""
