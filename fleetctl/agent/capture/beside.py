"""What lies beside site-packages and nobody owns, as part of an environment's digest: scripts, headers, data.

Such files may name the environment's own path. Where they do, they are hashed as if it had none, so that a clone,
which names another, has the same digest.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Sequence

from fleetctl.agent.capture.mentions import Paths
from fleetctl.agent.capture.reader import Answer, read_one
from fleetctl.agent.capture.tree import Problems, Tree
from fleetctl.agent.capture.unowned import in_site
from fleetctl.agent.files import read_start
from fleetctl.agent.sha import sha256

LIMIT = 16 << 20
ACTIVATED = re.compile(r"^(?:export )?VIRTUAL_ENV=(['\"]?)(/[^'\"\n]+)\1$", re.MULTILINE)
NOWHERE = "/\N{REPLACEMENT CHARACTER}"


def beside(unowned: Iterable[str], sites: Sequence[str]) -> List[str]:
    """Those of the unowned files that lie in a folder (``bin``, ``share``) outside site-packages."""
    return [path for path in unowned if "/" in path and not in_site(path, sites)]


def digests(tree: Tree, files: Sequence[str], places: Iterable[str], problems: Problems) -> Dict[str, str]:
    """The sha256 of each file; ``places`` are the paths that the environment may have in it."""
    own = Paths({*places, *activated(tree.root)} - {"", "/"})
    found: Dict[str, str] = {}
    for path in files:
        answer = _digest(tree, path, own)
        if answer.digest is None:
            problems.add(path, f"cannot be read: {answer.error}")
        else:
            found[path] = answer.digest
    return found


def _digest(tree: Tree, path: str, own: Paths) -> Answer:
    """Of a big file as it is: what an environment writes of its own place is small."""
    if tree.files[path].size > LIMIT:
        return read_one(tree.absolute(path), "sha256")
    try:
        content = read_start(tree.absolute(path), LIMIT)
    except OSError as error:
        return Answer(None, -1, -1, error.strerror or str(error))
    return Answer(sha256(own.replaced(content, NOWHERE)).hexdigest(), len(content), -1, "")


def activated(root: str) -> List[str]:
    """The path that ``activate`` sets: another one, where the environment was moved or copied."""
    try:
        text = read_start(f"{root}/bin/activate", 1 << 16).decode("utf-8", "surrogateescape")
    except OSError:
        return []
    return [match[1].rstrip("/") for match in ACTIVATED.findall(text)]
