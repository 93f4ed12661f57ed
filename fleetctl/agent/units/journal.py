"""A unit's journal, line by line, through ``journalctl``."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterator, List, Optional

from fleetctl.agent.errors import AgentError
from fleetctl.agent.units import supervised, systemd


def logs(args: Dict[str, Any], emit: Callable[[Dict[str, Any]], None]) -> Dict[str, int]:
    """Stream ``{"line", "time", "priority"}`` of ``unit``, oldest first; the result is ``{"lines": count}``.

    The last ``lines`` (default 100) of what is there, from ``since`` (journalctl's words for a time) on, and with
    ``follow`` all that comes, without end; with both all since then. :class:`AgentError` for a unit neither there
    nor in the journal.
    """
    unit = args["unit"]
    count = 0
    for line in _log(args) if supervised.in_charge() else _journal(args):
        emit(line)
        count += 1
    if not count and not args.get("since") and systemd.show([unit])[unit].get("LoadState") == "not-found":
        raise AgentError(
            f"there is no unit {unit}, and its journal has no line",
            where=unit,
            fix="`fleetctl status` lists the slots' units",
        )
    return {"lines": count}


def _journal(args: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    command = ["journalctl", "--no-pager", "-q", "-o", "json", f"--unit={args['unit']}"]
    last = f"--lines={args.get('lines', 100)}"
    if not args.get("since"):
        return _entries([*command, last, *(["--follow"] if args.get("follow") else [])])
    command += [f"--since={args['since']}"]
    if args.get("follow"):
        return _entries([*command, "--follow"])
    # Forwards journalctl would count the lines from that time on, and leave out the last ones.
    newest_first = list(_entries([*command, last, "--reverse"]))
    return iter(newest_first[::-1])


def _log(args: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    """The unit's log where no journal keeps one: lines without times."""
    if args.get("since"):
        raise AgentError(
            "this host keeps no times of a log's lines", fix="leave --since out", where=args["unit"]
        )
    path = supervised.log_of(args["unit"])
    if not path.is_file():
        return
    command = ["tail", "-n", str(args.get("lines", 100)), *(["-F"] if args.get("follow") else []), str(path)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout
    for text in process.stdout:
        yield {"line": text.decode(errors="replace").rstrip("\n"), "time": None, "priority": 6}


def _entries(command: List[str]) -> Iterator[Dict[str, Any]]:
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except FileNotFoundError:
        raise AgentError("journalctl is not on this host", fix="install systemd") from None
    assert process.stdout and process.stderr
    for text in process.stdout:
        line = entry(text)
        if line:
            yield line
    said = process.stderr.read().decode(errors="replace").strip().splitlines()
    if process.wait():
        raise AgentError(
            "journalctl failed",
            where=" ".join(command),
            fix="see its words; a time is written -1h, today or 2026-11-29",
            evidence=said,
        )


def entry(text: bytes) -> Optional[Dict[str, Any]]:
    """One line of ``journalctl -o json`` as ``{"line", "time", "priority"}``; None for no entry."""
    try:
        found = json.loads(text)
        moment = datetime.fromtimestamp(int(found["__REALTIME_TIMESTAMP"]) / 1e6, timezone.utc)
    except (ValueError, KeyError, TypeError):
        return None
    message = found.get("MESSAGE")
    if isinstance(message, list):
        message = bytes(message).decode(errors="replace")
    return {
        "line": message or "",
        "time": moment.isoformat(timespec="milliseconds"),
        "priority": int(found.get("PRIORITY", 6)),
    }
