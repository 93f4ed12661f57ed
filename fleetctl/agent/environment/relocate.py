"""Move what an environment says of its own place: scripts, ``activate``, ``.pth``, search paths, links."""

from __future__ import annotations

import os
import re
import urllib.parse
from pathlib import Path
from typing import Dict, Iterable, List, Optional

from fleetctl.agent.capture.foldertree import CACHE, listed, shown
from fleetctl.agent.capture.installed import Site
from fleetctl.agent.capture.mentions import Paths
from fleetctl.agent.environment import elfpath
from fleetctl.agent.environment.rewrite import forget_compiled, replace_bytes
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.files import read_json

INERT = "text in a compiled library that the loader does not read (where it was compiled, messages)"
ARCHIVE = b"!<arch>\n"
PLAIN = re.compile(rb"#!(?P<python>[^\n ]+)(?P<flags>[^\n]*)\n")
LONG = re.compile(
    rb"#!/bin/sh\n'''exec' \"?(?P<python>/[^\"\n]+?)\"?(?P<flags>(?: -[^\n\"]*?)?) \"\$0\" \"\$@\"\n' '''\n"
)
WHERE_IT_IS = b'"$(dirname -- "$(realpath -- "$0")")"'


class Relocation:
    """From the paths an environment had to the one it will have.

    ``old`` are absolute paths without a slash at the end; ``root`` is where its files are now, and ``new``
    what that folder will be called.
    """

    def __init__(self, root: str, old: Iterable[str], new: str) -> None:
        self.root = root
        self.old = sorted(set(old), key=len, reverse=True)
        self.new = new
        self.paths = Paths(self.old)
        self.changed: List[str] = []
        self.kept: Dict[str, str] = {}

    def files(self, candidates: Iterable[str]) -> None:
        """Rewrite those of the files (relative to ``root``) that name an old path.

        Byte code and other caches that name it go. Raises :class:`AgentError` (exit 5) with every file that
        names it and cannot be rewritten.
        """
        refused = []
        for path in self.paths.search(self.root, candidates):
            try:
                self._file(path)
            except elfpath.NoRoom as error:
                refused.append(f"{path}: {error}")
        if refused:
            raise AgentError(
                f"{len(refused)} files name the old place and cannot be rewritten: {listed(refused)}",
                where=shown(self.old[-1]),
                fix="build those distributions anew, or leave them out",
                evidence=[shown(text) for text in refused[:20]],
                exit=PREFLIGHT,
            )

    def links(self, links: Dict[str, str]) -> None:
        """Make each link into an old place relative."""
        for path, target in links.items():
            for old in self.old:
                if target == old or target.startswith(old + "/"):
                    inside = target[len(old) :].strip("/") or "."
                    os.unlink(f"{self.root}/{path}")
                    os.symlink(os.path.relpath(inside, os.path.dirname(path) or "."), f"{self.root}/{path}")
                    self.changed.append(path)
                    break

    def require_gone(self, files: Iterable[str], kept: Dict[str, str]) -> None:
        """The proof: none of the files names an old path, but those ``kept`` with a reason."""
        left = [path for path in self.paths.search(self.root, files) if path not in kept]
        if left:
            raise AgentError(
                f"these files still name the old place: {listed(left)}",
                where=shown(self.root),
                fix="report it as a bug, with the files' names",
                evidence=[shown(path) for path in left[:20]],
                exit=PREFLIGHT,
            )

    def _file(self, path: str) -> None:
        file = f"{self.root}/{path}"
        if CACHE in path:
            os.unlink(file)
            return
        content = Path(file).read_bytes()
        new = self._content(path, content)
        if new is None or self.paths.named_in(new):
            self.kept[path] = INERT
        if new is None:
            return
        replace_bytes(file, new)
        forget_compiled(file)
        self.changed.append(path)

    def _content(self, path: str, content: bytes) -> Optional[bytes]:
        if content.startswith(elfpath.MAGIC):
            return elfpath.relocated(content, self.paths, self.old, path)
        if content.startswith(ARCHIVE):
            return None
        if content.startswith(b"#!"):
            content = relative_script(content, self.old)
            if not self.paths.named_in(content):
                return content
        if b"\0" in content:
            raise elfpath.NoRoom("a binary file that is no library")
        return self.paths.replaced(content, self.new)


def relative_script(content: bytes, old: Iterable[str]) -> bytes:
    """A script whose interpreter is the one in its own folder, wherever that is; others unchanged."""
    match = LONG.match(content) or PLAIN.match(content)
    if match is None:
        return content
    folder, _, python = match.group("python").rpartition(b"/")
    if folder not in [os.fsencode(path) + b"/bin" for path in old] or not python.startswith(b"python"):
        return content
    flags = match.group("flags").rstrip(b"\r")
    start = b"#!/bin/sh\n'''exec' " + WHERE_IT_IS + b"/'" + python + b"'" + flags
    return start + b" \"$0\" \"$@\"\n' '''\n" + content[match.end() :]


def editable_outside(site: Site, files: Iterable[str]) -> Dict[str, str]:
    """Editable installs whose sources lie outside the environment: ``.dist-info`` folder → that place."""
    found = {}
    for path in files:
        if not path.endswith(".dist-info/direct_url.json"):
            continue
        content = read_json(Path(site.environment, path)) or {}
        url = urllib.parse.urlparse(content.get("url", ""))
        place = urllib.parse.unquote(url.path)
        if content.get("dir_info", {}).get("editable") and os.path.isdir(place):
            found[path.split("/")[-2]] = place
    return found
