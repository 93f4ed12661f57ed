"""The distributions of an environment as their own files describe them; nothing of them is imported."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple
from urllib.parse import unquote, urlsplit

from fleetctl.agent.capture import wheel_record
from fleetctl.agent.capture.tree import Problems, Tree, inside, shown_json
from fleetctl.agent.capture.wheel_record import Entry, Record
from fleetctl.agent.files import read_start

METADATA_LIMIT = 1 << 20
SMALL_LIMIT = 1 << 16
INFO = re.compile(r"(?P<name>.+?)(?:-(?P<version>[^-]+)(?:-py3\.\d+)?)?\.(?:dist-info|egg-info|egg)")
MODULE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\.py|(?:\.[A-Za-z0-9_-]+)*\.so)?")
LEFT_BEHIND = ("bin", "share", "etc", "include", "lib", "man")


class Distribution(NamedTuple):
    """One installed distribution: what its info folder says, and its RECORD's entries by where they are.

    ``owned`` are paths relative to the environment; ``outside`` leave it.
    """

    name: str
    version: str
    info: str
    site: str
    installer: Optional[str]
    direct_url: Optional[Dict[str, Any]]
    editable: Optional[str]
    requires: List[str]
    imports: List[str]
    record: Record
    record_sha256: str
    owned: Dict[str, Entry]
    outside: List[str]


def canonical(name: str) -> str:
    """The name as indexes compare it: ``Foo_Bar`` is ``foo-bar``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_distributions(tree: Tree, sites: Sequence[str], kind: str, problems: Problems) -> List[Distribution]:
    """Every distribution in the walked site-packages, by name."""
    found = []
    for site in sites:
        for name in sorted({*tree.folders.get(site, [])}):
            info = _join(site, name)
            if name.endswith((".dist-info", ".egg-info", ".egg-link")) or (
                name.endswith(".egg") and _join(info, "EGG-INFO") in tree.folders
            ):
                one = _distribution(tree, site, name, kind, problems)
                if one is not None:
                    found.append(one)
    return sorted(found, key=lambda one: (one.name, one.info))


def read_metadata(path: str) -> List[Tuple[str, str]]:
    """The header fields of METADATA or PKG-INFO, names in lower case; none where it cannot be read."""
    lines = _text(path, METADATA_LIMIT).splitlines()
    fields: List[Tuple[str, str]] = []
    for line in lines:
        if not line.strip():
            break
        if line[0] in " \t" and fields:
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {line.strip()}")
            continue
        key, colon, value = line.partition(":")
        if colon:
            fields.append((key.strip().lower(), value.strip()))
    return fields


def _distribution(tree: Tree, site: str, name: str, kind: str, problems: Problems) -> Optional[Distribution]:
    info = _join(site, name)
    if name.endswith(".egg-link"):
        return _egg_link(tree, site, name)
    place = tree.absolute(info)
    fields = _fields(tree, info)
    named = INFO.fullmatch(name)
    said = dict(reversed(fields))
    if not fields:
        problems.add(info, "has no METADATA that can be read")
    elif named and canonical(named.group("name")) != canonical(said.get("name", "")):
        problems.add(info, f"its METADATA is of {said.get('name', 'nothing')}")
    record = _record(tree, info)
    owned, outside = _placed(tree, site, record, kind)
    for own in (_join(info, one) for one in wheel_record.INSTALLERS_OWN):
        if own in owned:
            owned[own] = owned[own]._replace(digest="")
    direct_url = _direct_url(f"{place}/direct_url.json")
    imports = _imports(record, f"{place}/top_level.txt")
    return Distribution(
        name=canonical(said.get("name") or (named.group("name") if named else name)),
        version=said.get("version") or (named.group("version") or "" if named else ""),
        info=info,
        site=site,
        installer=_text(f"{place}/INSTALLER", SMALL_LIMIT).strip() or None,
        direct_url=direct_url,
        editable=_editable(tree, site, direct_url, record),
        requires=[value for key, value in fields if key == "requires-dist"],
        imports=imports,
        record=record,
        record_sha256=wheel_record.record_sha256(record, name),
        owned=owned,
        outside=outside,
    )


def _fields(tree: Tree, info: str) -> List[Tuple[str, str]]:
    if info in tree.files:
        return read_metadata(tree.absolute(info))
    for name in ("METADATA", "PKG-INFO", "EGG-INFO/PKG-INFO"):
        if _join(info, name) in tree.files:
            return read_metadata(tree.absolute(_join(info, name)))
    return []


def _record(tree: Tree, info: str) -> Record:
    path = _join(info, "RECORD")
    if path in tree.files:
        return wheel_record.read_record(Path(tree.absolute(path)))
    if info in tree.folders and "RECORD" in tree.folders[info]:
        return Record("missing", "RECORD is no regular file", [])
    return Record("missing", "there is no RECORD", [])


def _placed(tree: Tree, site: str, record: Record, kind: str) -> Tuple[Dict[str, Entry], List[str]]:
    """The entries by their path in the environment, and the paths of those that are not in it.

    A folder of packages alone has left behind what its distributions put beside it: scripts, manual pages.
    """
    owned: Dict[str, Entry] = {}
    outside: List[str] = []
    lead = f"{site}/" if site else ""
    for entry in record.entries:
        if entry.is_bytecode:
            continue
        path = entry.path
        if path[0] != "/" and not wheel_record.UNUSUAL.search(path):
            owned[lead + path] = entry
            continue
        place = posixpath.normpath(posixpath.join(tree.root, site, path))
        if inside(place, tree.root) and place != tree.root:
            owned[place[len(tree.root.rstrip("/")) + 1 :]] = entry
        elif not (kind == "folder" and path.lstrip("./").split("/")[0] in LEFT_BEHIND and path[0] == "."):
            outside.append(path)
    return owned, outside


def _direct_url(path: str) -> Optional[Dict[str, Any]]:
    """``direct_url.json``, without the password that its URL may hold."""
    try:
        said = json.loads(_text(path, SMALL_LIMIT))
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    url = said.get("url")
    if isinstance(url, str):
        said["url"] = re.sub(r"(?<=://)[^/@]*@", "", url)
    printable: Dict[str, Any] = shown_json(said)
    return printable


def _editable(tree: Tree, site: str, direct_url: Optional[Dict[str, Any]], record: Record) -> Optional[str]:
    """The folder that an editable install's modules are in."""
    described = (direct_url or {}).get("dir_info")
    if isinstance(described, dict) and described.get("editable") is True:
        url = str((direct_url or {}).get("url", ""))
        try:
            parts = urlsplit(url)
        except ValueError:
            return url
        return unquote(parts.path) if parts.scheme == "file" else url
    for entry in record.entries:
        if "/" not in entry.path and entry.path.endswith(".pth"):
            added = list(added_folders(_text(tree.absolute(_join(site, entry.path)), SMALL_LIMIT)))
            if added:
                return added[0]
        if "/" not in entry.path and entry.path.startswith("__editable__"):
            return _join(site, entry.path)
    return None


def added_folders(pth: str) -> Iterator[str]:
    """The absolute folders that a ``.pth`` file's text adds to ``sys.path``."""
    for line in pth.splitlines():
        if line.startswith("/"):
            yield line.strip()


def _egg_link(tree: Tree, site: str, name: str) -> Optional[Distribution]:
    """What ``setup.py develop`` left: a file that names the source folder."""
    info = _join(site, name)
    source = _text(tree.absolute(info), SMALL_LIMIT).split("\n")[0].strip()
    if not source:
        return None
    link = name[: -len(".egg-link")]
    said: Dict[str, str] = {}
    if source.startswith("/"):
        said = dict(reversed(read_metadata(f"{source}/{link.replace('-', '_')}.egg-info/PKG-INFO")))
    return Distribution(
        name=canonical(said.get("name", link)),
        version=said.get("version", ""),
        info=info,
        site=site,
        installer=None,
        direct_url=None,
        editable=source,
        requires=[],
        imports=[],
        record=Record("missing", "an egg-link has none", []),
        record_sha256=wheel_record.record_sha256(Record("missing", "", []), name),
        owned={info: Entry(name, "", "", -1)},
        outside=[],
    )


def _imports(record: Record, top_level: str) -> List[str]:
    """The names at the top that the distribution's modules are imported by."""
    found: Set[str] = set()
    for entry in record.entries:
        first, _, rest = entry.path.partition("/")
        if not entry.path.endswith((".py", ".so")) or first.startswith("__editable__"):
            continue
        module = MODULE.fullmatch(first)
        if module and (not rest or "." not in first):
            found.add(module.group(1))
    if not found:
        lines = _text(top_level, SMALL_LIMIT).split()
        found = {line for line in lines if line.isidentifier()}
    return sorted(found)


def _text(path: str, limit: int) -> str:
    """The start of a regular file; "" where there is none."""
    try:
        return read_start(path, limit).decode("utf-8", "replace")
    except OSError:
        return ""


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
