"""Ask pip which wheels fit a host, and let it download them: its own settings (proxies, …) are in force."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from fleetctl.environment.closure import Distribution
from fleetctl.environment.platform import HostPlatform
from fleetctl.errors import Exit, FleetError

SILENCE_S = 60.0
CONNECT_S = 3.0
_NOT_FOUND = re.compile(r"satisfies the requirement (\S+) \(from versions: (.*)\)")
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_DOWNLOADING = re.compile(r"(?:Downloading|Using cached|Processing) (?:\S*/)?(\S+\.whl)")

OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class Pip:
    """pip for one host's platform and a specification's extra ``indexes``; ``where`` names that file."""

    platform: HostPlatform
    indexes: tuple[str, ...]
    where: str

    def reachable(self) -> tuple[Pip, list[str]]:
        """This pip without the indexes that do not answer, and those; at most ``CONNECT_S`` seconds."""
        if not self.indexes:
            return self, []
        with ThreadPoolExecutor(len(self.indexes)) as pool:
            answers = dict(zip(self.indexes, pool.map(_answers, self.indexes), strict=True))
        there = tuple(index for index in self.indexes if answers[index])
        return Pip(self.platform, there, self.where), [index for index in self.indexes if not answers[index]]

    def report(
        self, requirements: Sequence[str], on_progress: OnProgress, dependencies: bool = False
    ) -> list[Distribution]:
        """The distributions pip would take, nothing kept; with ``dependencies`` also what they need."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.json"
            argv = ["install", "--dry-run", "--ignore-installed", "--target", folder, "--report", str(path)]
            argv += [] if dependencies else ["--no-deps"]
            self._run([*argv, *_listed(requirements, Path(folder))], on_progress)
            return [_distribution(item) for item in json.loads(path.read_text())["install"]]

    def download(self, distributions: Sequence[Distribution], folder: Path, on_progress: OnProgress) -> None:
        """Put each distribution's wheel into ``folder``; pip checks it against its digest."""
        lines = [f"{one.name} @ {one.url}#sha256={one.sha256}" for one in distributions]
        with tempfile.TemporaryDirectory() as lists:
            argv = ["download", "--no-deps", "--dest", str(folder), *_listed(lines, Path(lists))]
            self._run(argv, on_progress)

    def _run(self, argv: list[str], on_progress: OnProgress) -> None:
        command = [sys.executable, "-m", "pip", *argv, *self._options()]
        status, lines = _follow(command, on_progress, self.where)
        if status:
            raise self._failure(lines)

    def _options(self) -> list[str]:
        options = [
            "--only-binary",
            ":all:",
            "--implementation",
            "cp",
            "--python-version",
            self.platform.minor,
        ]
        for name in self.platform.wheel_platforms:
            options += ["--platform", name]
        for index in self.indexes:
            options += ["--extra-index-url", index]
        return [*options, "--no-input", "--progress-bar", "raw", "--timeout", "10", "--retries", "1"]

    def _failure(self, lines: list[str]) -> FleetError:
        """What pip's last words mean."""
        text = "\n".join(lines)
        found = _NOT_FOUND.search(text)
        if "No module named pip" in text:
            return FleetError(
                "fleetctl's own Python has no pip",
                where=sys.executable,
                fix=f"{sys.executable} -m ensurepip, or install fleetctl with pip",
                exit=Exit.PREFLIGHT,
            )
        offline = any("Retrying (" in line for line in lines)
        if offline:
            wanted = found[1] if found else "what is missing"
            return FleetError(
                f"{wanted} is in no index that answers, and not every index does",
                where=self.where,
                fix="see `pip config list` and this machine's way to the internet (HTTPS_PROXY, find-links)",
                evidence=lines[-10:],
                exit=Exit.PREFLIGHT,
            )
        if found:
            return self._not_found(Requirement(found[1]), found[2])
        return FleetError("pip failed", where=self.where, fix="see its words", evidence=lines[-15:])

    def _not_found(self, wanted: Requirement, listed: str) -> FleetError:
        """The wanted pin has no wheel for the host: never was one, or only for others."""
        version = next(iter(wanted.specifier)).version
        versions = [] if listed == "none" else [Version(text) for text in listed.split(", ")]
        everywhere = _all_versions(wanted.name, self.indexes)
        if version in everywhere:
            what = f"{wanted} has no wheel for the host ({self.platform})"
        elif everywhere:
            what = f"{wanted.name} has no version {version}"
        else:
            what = f"no index has a package {wanted.name}"
        near = sorted(versions, key=lambda one: (one > Version(version), one))
        below = [str(one) for one in near if one <= Version(version)][-3:]
        above = [str(one) for one in near if one > Version(version)][:3]
        usable = below + above
        fix = f"versions with a wheel for it near that: {', '.join(usable)}" if usable else ""
        look = "see its name and the indexes"
        if os.environ.get("PIP_NO_INDEX"):
            look = "pip is told to ask no index (PIP_NO_INDEX): unset it, or put the wheel where PIP_FIND_LINKS says"
        return FleetError(what, where=self.where, fix=fix or look)


def _listed(requirements: Sequence[str], folder: Path) -> list[str]:
    path = folder / "requirements.txt"
    path.write_text("\n".join(requirements) + "\n")
    return ["--requirement", str(path)]


def _distribution(item: dict[str, object]) -> Distribution:
    """One entry of pip's installation report."""
    metadata, download = item["metadata"], item["download_info"]
    assert isinstance(metadata, dict) and isinstance(download, dict)
    extras = item.get("requested_extras", [])
    assert isinstance(extras, list)
    return Distribution(
        canonicalize_name(metadata["name"]),
        metadata["version"],
        download["url"],
        download["archive_info"]["hashes"]["sha256"],
        tuple(metadata.get("requires_dist", [])),
        frozenset(extras),
    )


def _all_versions(name: str, indexes: tuple[str, ...]) -> list[str]:
    """Every version of a package on any platform; empty where the indexes know no such package."""
    argv = [
        sys.executable,
        "-m",
        "pip",
        "index",
        "versions",
        name,
        "--json",
        "--pre",
        "--ignore-requires-python",
    ]
    for index in indexes:
        argv += ["--extra-index-url", index]
    answer = subprocess.run(argv, capture_output=True, text=True, timeout=SILENCE_S, check=False)
    try:
        return list(json.loads(answer.stdout)["versions"])
    except (ValueError, KeyError):
        return []


def _answers(index: str) -> bool:
    """Whether the index's server takes a connection; taken for granted behind a proxy."""
    parts = urlsplit(index)
    if parts.scheme == "file" or parts.scheme in urllib.request.getproxies():
        return True
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname or "", port), CONNECT_S).close()
    except OSError:
        return False
    return True


def _follow(command: list[str], on_progress: OnProgress, where: str) -> tuple[int, list[str]]:
    """Run pip, wording its progress; the exit status and its other lines."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, bufsize=1
    ) as child:
        lines: list[str] = []
        file = ""
        try:
            for line in _lines(child):
                progress = _PROGRESS.match(line)
                if progress:
                    done, total = (int(number) / 1e6 for number in progress.groups())
                    on_progress(f"{file}: {done:.1f} of {total:.1f} MB")
                    continue
                lines.append(line)
                named = _DOWNLOADING.search(line)
                if named:
                    file = named[1]
                    on_progress(file)
        except TimeoutError:
            raise FleetError(
                f"pip has said nothing for {SILENCE_S:g} s",
                where=where,
                fix="see whether the indexes answer: `pip config list`, `pip download`",
                evidence=lines[-10:],
                exit=Exit.PREFLIGHT,
            ) from None
        finally:
            if child.poll() is None:
                child.kill()
    return child.returncode, lines


def _lines(child: subprocess.Popen[str]) -> Iterator[str]:
    """The child's lines until it ends; :class:`TimeoutError` after ``SILENCE_S`` without one."""
    lines: SimpleQueue[str | None] = SimpleQueue()
    assert child.stdout is not None
    output = child.stdout

    def read() -> None:
        for line in output:
            lines.put(line.strip())
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=SILENCE_S)
        except Empty:
            raise TimeoutError from None
        if line is None:
            child.wait()
            return
        if line:
            yield line
