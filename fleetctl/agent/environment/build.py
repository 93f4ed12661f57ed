"""Build an environment on this host from wheels that were shipped to it; no network, no pip needed.

uv (taken out of its own wheel) makes a relocatable venv under a temporary name and links the wheels' files
into it from its cache; byte code, checks and the marker follow, and only then does the folder get its name.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import sys
import time
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

from fleetctl.agent.capture.foldertree import walk
from fleetctl.agent.capture.installed import find_site
from fleetctl.agent.environment.bytecode import compile_command, link_compiled, nearest
from fleetctl.agent.environment.child import Children, refusal
from fleetctl.agent.environment.environments import environment_path, is_whole, marker
from fleetctl.agent.environment.marker import facts
from fleetctl.agent.environment.staging import (
    REFUSALS,
    Staging,
    disk_errors,
    free_bytes,
    refused,
    remove_leftovers,
    staged,
    was_killed,
)
from fleetctl.agent.errors import PREFLIGHT, AgentError
from fleetctl.agent.files import write_json
from fleetctl.agent.paths import MARKER, ROOT

Emit = Callable[[Dict[str, Any]], None]
WAIT_S = 900.0
STEP_S = 1800.0
FULL = (REFUSALS[errno.ENOSPC], REFUSALS[errno.EDQUOT])
IMPORTS = """
import importlib, sys
for name in sys.argv[1:]:
    print("import", name, flush=True)
    importlib.import_module(name)
"""


def build(args: Dict[str, Any], emit: Emit) -> Dict[str, Any]:
    """Make ``<root>/envs/<name>-<digest>`` unless it is there.

    ``args``: ``name``, ``digest`` (12 hex), ``python`` (``cp311``), ``wheels`` ``[{"name", "version",
    "filename", "sha256", "size", "unpacked"}]`` (bytes), ``builder`` (uv's wheel, same keys), ``imports``
    (modules that must load), ``abi``, ``root``?, ``wait_s``? (for another build of the same). Result:
    ``{"path", "built", "seconds": {step: s}}``. Raises :class:`AgentError`: exit 4 when another build holds
    it too long, exit 5 when this host cannot hold or run it; then nothing half done is left.
    """
    root = Path(args.get("root", ROOT))
    final = environment_path(root, args["name"], args["digest"])
    if marker(final, args["digest"]) is not None:
        return {"path": str(final), "built": False, "seconds": {}}
    _require_python(args["python"])
    needed = sum(wheel["unpacked"] for wheel in args["wheels"])
    with disk_errors(final, needed):
        final.parent.mkdir(parents=True, exist_ok=True)
        removed = remove_leftovers(final.parent)
        killed = was_killed(final.parent) or removed > 0
        with staged(final, float(args.get("wait_s", WAIT_S)), lambda left: _waiting(emit, left)) as staging:
            if staging is None:
                return made_by_another(final, args["digest"])
            if free_bytes(final) < needed:
                raise refused(final, needed, FULL[0], "")
            return _Build(args, emit, root, staging, needed).run(prune=killed)


class _Build:
    """One build under its lock: the steps in order, each announced and timed."""

    def __init__(self, args: Dict[str, Any], emit: Emit, root: Path, staging: Staging, needed: int) -> None:
        self.args = args
        self.emit = emit
        self.staging = staging
        self.needed = needed
        self.wheelhouse = root / "wheelhouse"
        self.tools = root / "tools"
        self.python = str(staging.path / "bin" / "python")
        self.children = Children(staging.fd, emit, _environment(root / "uv-cache"), STEP_S)
        self.seconds: Dict[str, float] = {}

    def run(self, prune: bool) -> Dict[str, Any]:
        """All steps, at the end the name. ``prune``: a killed build may have left files in uv's cache."""
        uv = str(self._step("builder", self._builder))
        if prune:
            self._step("prune", lambda: self._run("prune", [uv, "cache", "prune"]))
        self._step("venv", lambda: self._venv(uv))
        self._step("install", lambda: self._install(uv))
        self._step("compile", self._compile)
        self._step("check", lambda: self._check(uv))
        self._step("commit", self._commit)
        return {"path": str(self.staging.final), "built": True, "seconds": self.seconds}

    def _step(self, step: str, work: Callable[[], Any]) -> Any:
        start = time.monotonic()
        self.emit({"step": f"build-{step}", "state": "begin", "text": STEPS[step]})
        result = work()
        self.seconds[step] = round(time.monotonic() - start, 3)
        text = f"{STEPS[step]}: {self.seconds[step]:.1f} s"
        self.emit({"step": f"build-{step}", "state": "ok", "text": text})
        return result

    def _run(self, step: str, argv: List[str], progress: Optional[Callable[[], str]] = None) -> None:
        status, lines = self.children.run(f"build-{step}", argv, progress or (lambda: STEPS[step]))
        reason = refusal(lines) if status else None
        if reason:
            raise refused(self.staging.final, self.needed, reason, "\n".join(lines))
        if status:
            raise AgentError(
                f"{STEPS[step]} failed (exit status {status})",
                where=str(self.staging.final),
                fix="see the lines below; the specification's pins are the place to change",
                evidence=lines[-20:],
                exit=PREFLIGHT,
            )

    def _builder(self) -> Path:
        """uv's binary, from its wheel; kept, named by the wheel's digest."""
        wheel = self.args["builder"]
        binary = self.tools / f"uv-{wheel['sha256'][:12]}"
        if binary.exists():
            return binary
        self._require_whole([wheel])
        binary.parent.mkdir(parents=True, exist_ok=True)
        draft = binary.with_name(f"{binary.name}.{os.getpid()}")
        try:
            with zipfile.ZipFile(self.wheelhouse / wheel["filename"]) as archive:
                inside = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
                with archive.open(inside) as packed, draft.open("wb") as file:
                    shutil.copyfileobj(packed, file, 1 << 20)
            draft.chmod(0o755)
            draft.replace(binary)
        finally:
            draft.unlink(missing_ok=True)
        return binary

    def _venv(self, uv: str) -> None:
        python = os.path.realpath(sys.executable)
        self._run(
            "venv",
            [uv, "venv", "--relocatable", "--allow-existing", "--python", python, str(self.staging.path)],
        )

    def _install(self, uv: str) -> None:
        wheels = self.args["wheels"]
        pins = self.staging.path / "pins.txt"
        lines = [f"{wheel['name']}=={wheel['version']} --hash=sha256:{wheel['sha256']}" for wheel in wheels]
        pins.write_text("\n".join(lines) + "\n", encoding="utf-8")
        argv = [uv, "pip", "install", "--python", self.python, "--no-deps", "--no-index", "--require-hashes"]
        argv += ["--link-mode", "hardlink", "--find-links", str(self.wheelhouse), "--requirements", str(pins)]
        before = free_bytes(self.staging.path)
        try:
            self._run("install", argv, lambda: self._written(before))
        except AgentError as error:
            if any(reason in error.what for reason in FULL):
                shutil.rmtree(self.staging.path, ignore_errors=True)
                names = [wheel["name"] for wheel in wheels]
                self.children.run("build-prune", [uv, "cache", "clean", *names], lambda: STEPS["prune"])
            else:
                self._require_whole(wheels)
            raise
        pins.unlink()

    def _written(self, before: int) -> str:
        written = max(0, before - free_bytes(self.staging.path))
        return f"unpacked {written / 1e6:.0f} of {self.needed / 1e6:.0f} MB"

    def _require_whole(self, wheels: List[Dict[str, Any]]) -> None:
        """Remove each wheel whose bytes are not what its digest says; refuse to go on if there was one."""
        wrong = [wheel["filename"] for wheel in wheels if not is_whole(self.wheelhouse, wheel)]
        for name in wrong:
            (self.wheelhouse / name).unlink(missing_ok=True)
        if wrong:
            raise AgentError(
                f"damaged or not there: {', '.join(wrong)}",
                where=str(self.wheelhouse),
                fix="run it again: what was damaged is gone and will be sent anew",
                exit=PREFLIGHT,
            )

    def _compile(self) -> None:
        packages = self._packages(self.staging.path)
        shas = [wheel["sha256"] for wheel in self.args["wheels"]]
        sibling = nearest(self.staging.final.parent, shas, platform.python_version())
        if sibling is not None:
            link_compiled(packages, self._packages(sibling))
        argv = compile_command(self.python, packages)
        _, lines = self.children.run("build-compile", argv, lambda: STEPS["compile"])
        reason = refusal(lines)
        if reason:
            raise refused(self.staging.final, self.needed, reason, "\n".join(lines))

    def _check(self, uv: str) -> None:
        self._run("check", [uv, "pip", "check", "--python", self.python])
        self._run("check", [self.python, "-I", "-B", "-c", IMPORTS, *self.args["imports"]])
        left = list(_naming(self.staging.path, str(self.staging.path)))
        if left:
            raise AgentError(
                f"these files name the folder it was built in: {', '.join(left[:5])}",
                where=str(self.staging.path),
                fix="report it as a bug, with the packages' names",
                exit=PREFLIGHT,
            )

    def _commit(self) -> None:
        tree, site = walk(str(self.staging.path)), find_site(str(self.staging.path))
        keys = ("name", "version", "filename", "sha256")
        content = {
            "schema": 1,
            "name": self.args["name"],
            "digest": self.args["digest"],
            "python": {"tag": self.args["python"], "version": platform.python_version()},
            "abi": self.args["abi"],
            "wheels": [{key: wheel[key] for key in keys} for wheel in self.args["wheels"]],
            "built_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **facts(tree, site, (), {}),
        }
        write_json(self.staging.path / MARKER, content, 0o644)
        self.staging.commit()

    def _packages(self, environment: Path) -> Path:
        return environment / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"


STEPS = {
    "builder": "unpack uv",
    "prune": "remove what a build left half done",
    "venv": "make the venv",
    "install": "install the wheels",
    "compile": "compile to byte code",
    "check": "check dependencies and imports",
    "commit": "write through and name it",
}


def _environment(cache: Path) -> Dict[str, str]:
    """The children's whole environment: nothing of the host's uv or Python settings has a say."""
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": "/",
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "UV_CACHE_DIR": str(cache),
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }


def _require_python(tag: str) -> None:
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    if here != tag:
        raise AgentError(
            f"this host's Python is {platform.python_version()} ({here}); the wheels are for {tag}",
            where=os.path.realpath(sys.executable),
            fix="resolve the environment for this host again",
            exit=PREFLIGHT,
        )


def _waiting(emit: Emit, left: float) -> None:
    emit(
        {
            "step": "build-lock",
            "state": "wait",
            "text": "another build of this environment",
            "left_s": round(left),
        }
    )


def made_by_another(final: Path, digest: str) -> Dict[str, Any]:
    """The result where another process made it meanwhile. Raises :class:`AgentError` for a stranger's folder."""
    if marker(final, digest) is None:
        raise AgentError(
            f"{final} is there and is not an environment made by fleetctl",
            where=str(final),
            fix="see what it is; move it away or remove it",
            exit=PREFLIGHT,
        )
    return {"path": str(final), "built": False, "seconds": {}}


def _files(folder: Path) -> Iterator["os.DirEntry[str]"]:
    """Every regular file under ``folder``."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield entry


def _naming(folder: Path, name: str) -> Iterator[str]:
    """Files written by this build (those linked from the cache know nothing of it) that contain ``name``."""
    for entry in _files(folder):
        if entry.stat().st_nlink == 1 and not entry.name.endswith(".pyc"):
            content = Path(entry.path).read_bytes()
            if name.encode() in content:
                yield os.path.relpath(entry.path, folder)
