"""``environment.verify``: whether an environment is still what its own records say, and can run."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence

from fleetctl.agent.capture.bom import Capture
from fleetctl.agent.capture.tree import Tree, exists, inside, shown
from fleetctl.agent.files import read_json, read_start
from fleetctl.agent.paths import MARKER
from fleetctl.agent.rollout.preflight import finding

Json = Dict[str, Any]

EVIDENCE = 10
SCRIPT_LIMIT = 1 << 16
DRIVER = re.compile(r"lib(?:cuda|nvidia-ml|nvcuvid|nvidia-encode|cudadebugger|nvidia-ptxjitcompiler)\.so")
TOOLKIT = re.compile(r"nvidia-|cuda-|triton$")
SHEBANG = re.compile(rb"#!\s*(/[^\s]*)")
NAMED_VENV = re.compile(rb"^(?:export )?VIRTUAL_ENV=(['\"]?)(/[^'\"\n]+)\1\s*$", re.MULTILINE)
REINSTALL = "install the distribution again from its wheel, or make the environment anew"


def verify(args: Json, emit: Callable[[Json], None]) -> Json:
    """The ``environment.verify`` call. ``args``: ``path``; result: ``{"ok", "findings", "abi", "files",
    "bytes", "seconds"}``, the files and bytes being those whose content was compared. ``ok``: no finding is an error.

    :class:`AgentError` (exit 2) where ``path`` is no environment.
    """
    begin = time.monotonic()
    captured = Capture(args["path"], emit, hashes=True, native=True)
    bom = captured.run()
    marker = read_json(Path(captured.layout.root) / MARKER)
    marker = marker if isinstance(marker, dict) else None
    findings = [*bom_findings(bom), *marker_findings(bom, marker), *path_findings(captured.tree, marker)]
    return {
        "ok": all(found["severity"] != "error" for found in findings),
        "findings": findings,
        "abi": bom["abi"]["tag"],
        "files": bom["checked_files"],
        "bytes": bom["checked_bytes"],
        "seconds": round(time.monotonic() - begin, 3),
    }


def bom_findings(bom: Json) -> List[Json]:
    """What a BOM says against its environment."""
    return [
        *_python(bom),
        *_records(bom),
        *_copies(bom),
        *_libraries(bom),
        *_cuda(bom),
        *_odd(bom),
    ]


def marker_findings(bom: Json, marker: Any) -> Iterator[Json]:
    """Distributions whose RECORDs are not those that fleetctl wrote into the environment's marker."""
    records = (marker or {}).get("records")
    if not isinstance(records, dict):
        return
    now = {one["name"]: one["record"]["sha256"] for one in bom["distributions"]}
    unread = {one["name"] for one in bom["distributions"] if one["record"]["state"] == "unreadable"}
    known = now.keys() - unread
    other = [f"{name} is another one" for name in records if name in known and now[name] != records[name]]
    gone = [f"{name} is gone" for name in records if name not in now]
    added = [f"{name} came later" for name in now if name not in records and now[name] is not None]
    differences = sorted([*other, *gone, *added])
    if differences:
        what = f"the environment was changed after fleetctl made it: {differences[0]}"
        fix = "make it anew: an environment is never changed in place"
        yield finding("env-marker", what, bom["path"], fix, differences[:EVIDENCE])


def path_findings(tree: Tree, marker: Any, home: str = "") -> Iterator[Json]:
    """Scripts and settings that name another environment, such as the one that this was copied from.

    ``home`` is the path that it will have, where that is another one than now.
    """
    home = home or tree.root
    origin = (marker or {}).get("origin")
    old = origin.get("path") if isinstance(origin, dict) else None
    other: List[str] = []
    broken: List[str] = []
    for path in _settings(tree):
        try:
            text = read_start(tree.absolute(path), SCRIPT_LIMIT)
        except OSError:
            continue
        named = _named_elsewhere(home, path, text)
        if old and old != home and re.search(re.escape(old.encode()) + rb"(?![\w.-])", text):
            named = named or old
        if named:
            (other if exists(named) else broken).append(f"{shown(path)} names {shown(named)}")
    fix = "make it anew by `fleetctl env clone`: a copied environment names the place it came from"
    if broken:
        what = f"{broken[0]}, which is not there"
        yield finding("env-old-path", what, shown(tree.root), fix, broken[:EVIDENCE])
    if other:
        severity = "error" if marker else "warning"
        what = f"{other[0]}, which is not in this environment"
        yield finding("env-other-path", what, shown(tree.root), fix, other[:EVIDENCE], severity)


def _settings(tree: Tree) -> Iterator[str]:
    """Files that an installer writes, where an environment's path belongs."""
    for path, file in tree.files.items():
        name = path.rpartition("/")[2]
        in_bin = path.startswith("bin/") and not file.link and file.size < SCRIPT_LIMIT
        if in_bin or path == "pyvenv.cfg" or name.endswith(".pth") or name == "direct_url.json":
            yield path


def _named_elsewhere(root: str, path: str, text: bytes) -> str:
    """The interpreter or environment outside that a script in ``bin/`` is for; "" for none."""
    if not path.startswith("bin/"):
        return ""
    shebang = SHEBANG.match(text)
    if shebang:
        interpreter = os.fsdecode(shebang.group(1))
        name = interpreter.rpartition("/")[2]
        return interpreter if name.startswith("python") and not _belongs(interpreter, root) else ""
    named = NAMED_VENV.search(text)
    place = os.fsdecode(named.group(2)) if named else root
    return "" if _belongs(place, root) else place


def _belongs(path: str, root: str) -> bool:
    return inside(path, root) or inside(path, os.path.realpath(root))


def _python(bom: Json) -> Iterator[Json]:
    python = bom["python"]
    if python["path"] is not None and not python["runs"]:
        fix = "a venv needs the Python that it was made with: install that, or make the environment anew"
        yield finding("env-python", f"the interpreter does not run: {python['why']}", python["path"], fix)
    elif python["path"] is None and bom["kind"] != "folder":
        yield finding("env-python", "there is no interpreter", bom["path"], "make the environment anew")


def _records(bom: Json) -> Iterator[Json]:
    for one in bom["distributions"]:
        for key, said in (("changed", "differ from"), ("missing", "are missing of")):
            count = one[f"{key}_count"]
            if count:
                noun = f"{count} file{'s' if count > 1 else ''}"
                verb = said if count > 1 else said.replace("differ", "differs").replace("are", "is")
                what = f"{noun} {verb} what {one['name']} {one['version']} installed"
                yield finding(f"env-{key}", what, one["info"], REINSTALL, one[key][:EVIDENCE])
        if one["outside_count"]:
            what = f"the RECORD of {one['name']} names files outside the environment"
            yield finding("env-outside", what, one["info"], REINSTALL, one["outside"][:EVIDENCE], "warning")
        record = one["record"]
        if record["state"] == "malformed":
            what = f"the RECORD of {one['name']} cannot be read whole: {record['why']}"
            yield finding("env-record", what, one["info"], REINSTALL, severity="warning")
        if record["state"] == "unreadable":
            what = f"the RECORD of {one['name']} cannot be read, so its files are not checked"
            fix = "verify it as a user who may read all of it"
            yield finding("env-record", what, one["info"], fix, [record["why"]], "warning")
    unrecorded = [one["name"] for one in bom["distributions"] if one["record"]["state"] == "missing"]
    if unrecorded:
        what = f"{len(unrecorded)} distributions have no RECORD: their files cannot be checked"
        yield finding("env-record", what, bom["path"], "", unrecorded[:EVIDENCE], "warning")


def _copies(bom: Json) -> Iterator[Json]:
    for package in bom["unowned"]["packages"]:
        outer = package.rpartition("/")[0]
        what = f"a copy of {outer} lies inside itself, at {package}"
        fix = f"remove {package}, and install the distribution again from its wheel"
        yield finding("env-nested", what, bom["path"], fix)
    for one in bom["twice"]:
        what = f"{one['name']} is installed twice: {' and '.join(one['versions'])}"
        yield finding("env-twice", what, bom["path"], REINSTALL, one["infos"])


def _libraries(bom: Json) -> Iterator[Json]:
    fix = "install the distribution that gives it, built for the same torch and CUDA"
    for one in bom["extensions"]:
        if one["error"]:
            yield finding("env-library", f"not readable as a library: {one['error']}", one["path"], REINSTALL)
        elif one["missing"]:
            driver = all(DRIVER.match(name) for name in one["missing"])
            what = f"nothing gives {', '.join(one['missing'][:3])}"
            severity = "warning" if driver else "error"
            yield finding("env-library", what, one["path"], fix, one["missing"][:EVIDENCE], severity)
        elif one["undefined_count"]:
            what = f"nothing gives {one['undefined_count']} of its symbols: {', '.join(one['undefined'][:2])}"
            yield finding("env-symbols", what, one["path"], fix, one["undefined"][:EVIDENCE])


def _cuda(bom: Json) -> Iterator[Json]:
    """More than one CUDA major; only a warning where all but one are NVIDIA's own packages, which nothing uses."""
    majors: Dict[str, Sequence[str]] = bom["abi"]["cuda"]
    if len(majors) < 2:
        return
    bystanders = {one["path"] for one in bom["extensions"] if TOOLKIT.match(one["distribution"] or "")}
    used = [major for major, paths in majors.items() if not bystanders.issuperset(paths)]
    what = f"libraries of more than one CUDA major: {' and '.join(sorted(majors))}"
    fix = "take torch and all that is built against it from one toolkit"
    evidence = [f"CUDA {major}: {path}" for major in sorted(majors) for path in majors[major][:4]]
    yield finding("env-cuda", what, bom["path"], fix, evidence, "error" if len(used) > 1 else "warning")


def _odd(bom: Json) -> Iterator[Json]:
    if bom["problems"]:
        what = f"{bom['problems_count']} things are odd: {bom['problems'][0]['what']}"
        evidence = [f"{one['where']}: {one['what']}" for one in bom["problems"][:EVIDENCE]]
        yield finding("env-odd", what, bom["path"], "", evidence, "warning")
