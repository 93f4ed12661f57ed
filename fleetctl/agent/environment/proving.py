"""Whether a patched environment does what its patch sets say: byte code, imports, checks, in its own Python."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

from fleetctl.agent.capture.contents import is_inside, site_packages
from fleetctl.agent.environment.child import Children
from fleetctl.agent.errors import INPUT, PREFLIGHT, AgentError

Emit = Callable[[Dict[str, Any]], None]
STEP_S = 600.0
STEP = "patch-verify"
STALE = """
import importlib.util, json, marshal, os, sys
folder, *names = sys.argv[1:]
def why(source):
    if not os.path.isfile(source):
        return "not there"
    kept = importlib.util.cache_from_source(source)
    if not os.path.exists(kept):
        return "no byte code"
    with open(kept, "rb") as file:
        head, code = file.read(16), file.read()
    with open(source, "rb") as file:
        text = file.read()
    if head[:4] != importlib.util.MAGIC_NUMBER:
        return "byte code of another Python"
    if int.from_bytes(head[4:8], "little") & 1:
        if head[8:] != importlib.util.source_hash(text):
            return "byte code of another source (by its hash)"
    else:
        state = os.stat(source)
        stamp = (int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF)
        if (int.from_bytes(head[8:12], "little"), int.from_bytes(head[12:16], "little")) != stamp:
            return "byte code older than the source"
    try:
        if marshal.loads(code) != compile(text, source, "exec", dont_inherit=True):
            return "byte code of another source that looks as old and as long"
    except (EOFError, SyntaxError, TypeError, ValueError) as error:
        return "no byte code of this source: " + repr(error)
print(json.dumps({name: said for name in names if (said := why(os.path.join(folder, name)))}))
"""
IMPORT = "import importlib, sys; importlib.import_module(sys.argv[1])"


def prove(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Look at byte code and run imports and checks; the environment is not written to.

    ``args``: ``path``, ``sources`` (.py files relative to site-packages), ``imports`` (modules), ``checks``
    ``[{"what", "argv", "seconds"?}]``: ``argv[0]`` is ``python`` and stands for the environment's. Result: ``{"stale":
    [{"path", "why"}], "failed": [{"what", "status", "lines"}], "ran": count, "seconds"}``.
    """
    path, start = Path(args["path"]), time.monotonic()
    packages = site_packages(path)
    python = str(path / "bin" / "python")
    if not Path(python).exists():
        raise AgentError(
            "the environment has no Python that is there",
            where=python,
            fix="a skeleton cannot be patched; build or clone another",
            exit=PREFLIGHT,
        )
    fd = os.open(packages, os.O_RDONLY | os.O_DIRECTORY)
    try:
        children = Children(fd, emit, _environment(path), STEP_S)
        stale = _stale(children, python, packages, args["sources"])
        work = [
            {"what": f"import {name}", "argv": ["python", "-I", "-B", "-c", IMPORT, name]}
            for name in args["imports"]
        ]
        work += args["checks"]
        failed = [failure for one in work for failure in _run(children, python, one)]
    finally:
        os.close(fd)
    seconds = round(time.monotonic() - start, 3)
    return {"stale": stale, "failed": failed, "ran": len(work), "seconds": seconds}


def _stale(children: Children, python: str, packages: Path, sources: List[str]) -> List[Dict[str, str]]:
    names = [name for name in sources if name.endswith(".py") and is_inside(name)]
    if not names:
        return []
    status, lines = children.run(
        STEP, [python, "-I", "-B", "-c", STALE, str(packages), *names], lambda: "look at byte code"
    )
    if status:
        raise AgentError(
            "its Python cannot look at its byte code", where=python, evidence=lines[-10:], exit=PREFLIGHT
        )
    return [{"path": name, "why": why} for name, why in json.loads(lines[-1]).items()]


def _run(children: Children, python: str, work: Dict[str, Any]) -> List[Dict[str, Any]]:
    if work["argv"][0] != "python":
        raise AgentError(f"not the environment's Python: {work['argv'][0]}", where=python, exit=INPUT)
    status, lines = children.run(
        STEP, [python, *work["argv"][1:]], lambda: str(work["what"]), work.get("seconds")
    )
    return [{"what": work["what"], "status": status, "lines": lines[-20:]}] if status else []


def _environment(path: Path) -> Dict[str, str]:
    return {
        "PATH": f"{path / 'bin'}:" + os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": "/",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "VIRTUAL_ENV": str(path),
    }
