"""Bulk to a host (wheels, models): rsync over OpenSSH, with the settings of the agent's connection."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fleetctl.errors import Exit, FleetError
from fleetctl.transport.settings import Host, Settings, place, resolve

SILENCE_S = 60
PARTIAL = ".fleetctl-partial"
PROGRESS = re.compile(r"^\s*(\d+)\s+(\d+)%\s+([\d.]+)([kMGT]?)B/s\s+(\d+):(\d\d):(\d\d)")
UNITS = {"": 1, "k": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
LINK_CODES = frozenset({10, 12, 30, 35, 255})


@dataclass(frozen=True)
class Progress:
    """How far a transfer is: bytes sent, percent of all, bytes per second, seconds left."""

    bytes: int
    percent: int
    rate: float
    left_s: int


def push(
    host: Host,
    sources: Sequence[Path],
    destination: str,
    on_progress: Callable[[Progress], None] | None = None,
) -> int:
    """Copy files and folders into the folder ``destination`` of a host, and return the bytes sent.

    A folder arrives under its own name. What is there already is not sent again; a cut transfer goes on where
    it stopped, and shows under its final name only when whole. :class:`FleetError`: exit 3 where the host or
    the link fails, 5 where the host cannot take it (space, rights, no rsync), 2 where a source or the local
    rsync is missing.
    """
    missing = [str(source) for source in sources if not source.exists()]
    if missing:
        raise FleetError("nothing to send: no such file or folder", where=", ".join(missing))
    settings = resolve(host)
    with tempfile.TemporaryFile() as stderr:
        process = _start(settings, sources, destination, stderr)
        try:
            sent = 0
            for progress in _progress(process):
                sent = progress.bytes
                if on_progress:
                    on_progress(progress)
            code = process.wait()
        finally:
            process.terminate()
            process.wait()
        if code:
            stderr.seek(0)
            raise transfer_failure(settings, destination, code, stderr.read().decode(errors="replace"))
    return sent


def _start(
    settings: Settings, sources: Sequence[Path], destination: str, stderr: IO[bytes]
) -> subprocess.Popen[bytes]:
    target = f"[{settings.name}]" if ":" in settings.name else settings.name
    command = [
        "rsync",
        *("-a", "--no-owner", "--no-group", "--protect-args", f"--partial-dir={PARTIAL}"),
        *("--info=progress2", "--no-human-readable", "--outbuf=L", f"--timeout={SILENCE_S}"),
        *("-e", shlex.join(settings.openssh())),
        f"--rsync-path={settings.become}mkdir -p {shlex.quote(destination)} && {settings.become}rsync",
        "--",
        *(str(source.absolute()) for source in sources),
        f"{target}:{destination.rstrip('/')}/",
    ]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise FleetError("rsync is not installed here", fix="apt-get install rsync") from None


def _progress(process: subprocess.Popen[bytes]) -> Iterator[Progress]:
    """rsync's progress lines, which end in carriage returns."""
    assert process.stdout
    held = b""
    while chunk := process.stdout.read1(65536):  # type: ignore[attr-defined]
        *lines, held = re.split(rb"[\r\n]", held + chunk)
        for line in lines:
            if progress := parse_progress(line.decode(errors="replace")):
                yield progress


def parse_progress(line: str) -> Progress | None:
    """One line of ``--info=progress2 --no-human-readable``; None for any other line."""
    found = PROGRESS.match(line)
    if not found:
        return None
    sent, percent, rate, unit, hours, minutes, seconds = found.groups()
    left = 0 if percent == "100" else int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return Progress(int(sent), int(percent), float(rate) * UNITS[unit], left)


def transfer_failure(settings: Settings, destination: str, code: int, said: str) -> FleetError:
    """The error for rsync's status and words, where the host is the one that is written to."""
    exit = Exit.PREFLIGHT
    where = f"{settings.name}:{destination}"
    if "No space left on device" in said or "Disk quota exceeded" in said:
        what, fix = "the disk is full", f"free space there: `df -h {destination}`, `fleetctl env list`"
    elif "rsync: command not found" in said or "rsync: not found" in said or code == 127:
        what, fix = "the host has no rsync", "install it there: `apt-get install rsync`"
    elif "Permission denied (" not in said and (
        "Permission denied" in said or "Read-only file system" in said
    ):
        what, fix = "the folder cannot be written", f"check its rights and mount: `ls -ld {destination}`"
    elif code in LINK_CODES:
        what, where, exit = "the link failed during the transfer", place(settings), Exit.UNREACHABLE
        fix = "try again: it goes on where it stopped"
    else:
        what, fix = f"rsync failed with status {code}", "see its words below"
    return FleetError(what, where=where, fix=fix, evidence=said.splitlines()[-10:], exit=exit)
