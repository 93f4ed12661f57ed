"""Write a patch set's files into a derived environment; every digest is checked before the first is written."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

from fleetctl.agent.capture.foldertree import shown
from fleetctl.agent.capture.installed import Site, canonical, row_of
from fleetctl.agent.environment.rewrite import forget_compiled, prune_empty, replace_bytes
from fleetctl.agent.errors import INPUT, PREFLIGHT, AgentError


def apply_patches(site: Site, patches: List[Dict[str, Any]]) -> Set[str]:
    """Write all files of all patches; the paths (relative to the environment) that changed.

    A patch: ``{"name", "distribution", "writes": [{"path", "before", "after", "content"}]}``. ``before`` is a
    sha256 or None for a new file, ``content`` base64 or None for a file to delete. Raises
    :class:`AgentError`: exit 5 where a file is not as ``before`` says; then nothing was written.
    """
    state: Dict[str, Optional[str]] = {}
    contents = [[_checked(site, patch, write, state) for write in patch["writes"]] for patch in patches]
    changed = set()
    for patch, decoded in zip(patches, contents):
        for write, content in zip(patch["writes"], decoded):
            _write(site, site.inside(write["path"]), content)
        changed |= {site.inside(write["path"]) for write in patch["writes"]}
        _record(site, patch)
    return changed


def patch_digest(patch: Dict[str, Any]) -> str:
    """A sha256 of what the patch changes: each path with the digests of before and after."""
    lines = sorted(f"{write['path']}\0{write['before']}\0{write['after']}" for write in patch["writes"])
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _checked(
    site: Site, patch: Dict[str, Any], write: Dict[str, Any], state: Dict[str, Optional[str]]
) -> Optional[bytes]:
    """The decoded content; ``state`` is what the files will be once the writes checked so far are done."""
    path = write["path"]
    try:
        inside = site.inside(path)
        content = None if write["content"] is None else base64.b64decode(write["content"], validate=True)
    except (ValueError, binascii.Error) as error:
        raise _refused(patch, path, f"cannot be written: {error}", INPUT) from None
    if not inside.startswith(site.lead + "/") or path.endswith((".pyc", "/RECORD")):
        raise _refused(patch, path, "is not a file of site-packages that a patch may change", INPUT)
    there = state[inside] if inside in state else _digest(f"{site.environment}/{inside}")
    if there != write["before"]:
        was = f"sha256 {there[:12]}" if there else "not there"
        wanted = f"sha256 {write['before'][:12]}" if write["before"] else "no file"
        raise _refused(patch, path, f"is {was}, the patch is for {wanted}", PREFLIGHT)
    if content is not None and hashlib.sha256(content).hexdigest() != write["after"]:
        raise _refused(patch, path, "would not become what the patch's digest says", INPUT)
    state[inside] = None if content is None else write["after"]
    return content


def _write(site: Site, inside: str, content: Optional[bytes]) -> None:
    file = f"{site.environment}/{inside}"
    forget_compiled(file)
    if content is None:
        os.unlink(file)
        prune_empty(os.path.dirname(file), site.packages)
    else:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        replace_bytes(file, content)


def _record(site: Site, patch: Dict[str, Any]) -> None:
    infos = site.infos().get(canonical(patch["distribution"]), [])
    if len(infos) != 1:
        what = f"{patch['distribution']} is {'there twice' if infos else 'not there'}"
        raise _refused(patch, "", what, PREFLIGHT)
    written = {os.path.normpath(write["path"]) for write in patch["writes"]}
    rows = [row for row in site.record(infos[0]) if os.path.normpath(row.path) not in written]
    rows += [
        row_of(path, f"{site.packages}/{path}") for path in written if Path(site.packages, path).exists()
    ]
    site.write_record(infos[0], rows)


def _digest(file: str) -> Optional[str]:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def _refused(patch: Dict[str, Any], path: str, what: str, exit: int) -> AgentError:
    return AgentError(
        f"patch {patch['name']}: {shown(path)} {what}".replace(":  ", ": "),
        where=shown(path),
        fix=f"see `fleetctl patch status`: which versions of {patch['distribution']} the patch fits",
        exit=exit,
    )
