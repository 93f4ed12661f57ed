"""A line of a log without what others put before it: time, host, process, container, level, colours."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from fleetctl.agent.rollout.signatures import NOTE

DEEPEST = 6
ESCAPES = (b"\x1b", b"^[", b"#033", b"\\x1b", b"\\u001b")
COLOURS = re.compile(
    rb"(?:\x1b|\^\[|#033|\\x1b|\\u001b)(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))"
)
_TIME = r"(?:[01]?\d|2[0-3]):[0-5]\d:[0-6]\d(?:[.,]\d+)?"
_DATE = rf"\d{{4}}[-/]\d\d[-/]\d\d[T ]{_TIME}(?: ?(?:Z|[+-]\d\d:?\d\d))?"
_LEVEL = r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"
_IDENT = r"(?P<ident>[\w@.\-/:()]+?)(?:\[(?P<pid>\d+)\])?: "
_PREFIXES = re.compile(
    "|".join(
        (
            # journalctl and syslog: Jan 29 00:51:38 host name[12]: …, with any language's month
            rf"(?:<\d+>)?(?:[^\W\d]{{2,5}}\.?|\d{{1,2}}月) +\d{{1,2}}\.? {_TIME} \S+ {_IDENT}",
            rf"{_DATE} \S+ (?P<ident2>[\w@.\-/]+)\[(?P<pid2>\d+)\]: ",
            rf"{_DATE} \S+ (?P<ident3>kernel|systemd): ",
            r"\d{9,10}\.\d+ \S+ (?P<ident4>[\w@.\-/]+)(?:\[(?P<pid4>\d+)\])?: ",
            # dmesg, and journalctl -o short-monotonic
            r"(?:<\d+>)?\[ *\d+\.\d{4,6}\](?: \S+ (?P<ident5>[\w@.\-/]+)(?:\[(?P<pid5>\d+)\])?:)? ",
            rf"\[\w{{3}} \w{{3}} +\d+ {_TIME} \d{{4}}\] ",
            r"(?P<ident6>kernel|systemd(?:\[1\])?): ",
            # SGLang: [2026-01-29 00:51:38 DP0 TP0]
            rf"\[{_DATE}(?: [A-Z]+\d+)*\] ",
            # vLLM: (EngineCore pid=1) ERROR 01-29 00:51:38 [core.py:708] …, ERROR 01-29 00:51:38 core.py:708] …
            r"\((?P<worker>[A-Za-z][\w ]*?(?:pid|ip)=[^)]*)\) ",
            rf"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d {_TIME} \[?[\w./<>]+:\d+\] ?",
            r"\[(?P<rank>rank\d+)\]:(?:\[[A-Z]\d* ?[^\]]*\])? ?",
            # Kubernetes and Docker
            r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:(?:stdout|stderr) [FP] )?",
            r"\[(?:pod/)?(?P<pod>[a-z0-9][\w\-./]*/[\w\-./]+)\] ",
            r"(?P<compose>[a-z0-9][\w.\-]*) +\| ",
            r"\[(?P<tag>[a-z][\w\-]*)\]: ",
            # Python's and others' loggers
            rf"{_DATE} - [\w.]+ - {_LEVEL} - ",
            rf"{_DATE} ?\| *{_LEVEL} *\| [\w.<>:]+ - ",
            rf"{_DATE} +\[?{_LEVEL}\]?[: ]+",
            rf"{_DATE}[: ]+",
            r"[IWEF]\d{4} [\d:.]+ +\d+ [\w.\-/]+:\d+\] ",
            r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL): {2,5}(?=\S)",
            # journalctl -o export and -o verbose
            r" *MESSAGE=",
        )
    )
)
_INFO = re.compile(r"INFO|DEBUG|NOTICE")
_JSON_FIELDS = ("MESSAGE", "log", "message", "msg")


class Line(NamedTuple):
    """What is said, by whom (a process, worker or container; ``""`` where nothing says so).

    ``is_note``: a logger said it below an error's level; ``is_info``: and below a warning's.
    """

    text: str
    source: str = ""
    of_systemd: bool = False
    of_kernel: bool = False
    is_note: bool = False
    is_info: bool = False


def parts(raw: bytes) -> list[Line]:
    """A raw line's lines: what a progress bar overwrote and what a JSON entry holds are lines of their own."""
    if raw.endswith(b"\r"):
        raw = raw[:-1]
    if any(escape in raw for escape in ESCAPES):
        raw = COLOURS.sub(b"", raw)
    if b"\x00" in raw:
        raw = raw.replace(b"\x00", b"")
    text = raw.decode("utf-8", "replace")
    if text.startswith("{") and (entry := _entry(text)) is not None:
        return entry
    if "\r" in text:
        return [stripped(part) for part in text.split("\r") if part]
    return [stripped(text)]


def stripped(text: str, source: str = "") -> Line:
    """The line without its prefixes, however many there are."""
    of_systemd = of_kernel = is_note = is_info = False
    for _ in range(DEEPEST):
        note = NOTE.match(text)
        is_note = is_note or note is not None
        is_info = is_info or (note is not None and _INFO.search(note[0]) is not None)
        match = _PREFIXES.match(text)
        if not match or not match.end():
            break
        named = {name: value for name, value in match.groupdict().items() if value}
        ident = next((value for name, value in named.items() if name.startswith("ident")), "")
        of_systemd = of_systemd or ident.startswith("systemd")
        of_kernel = of_kernel or ident == "kernel"
        source = "/".join(filter(None, (source, *named.values())))
        text = text[match.end() :]
    return Line(text, source, of_systemd, of_kernel, is_note, is_info)


def _entry(text: str) -> list[Line] | None:
    """``journalctl -o json``, Docker's json-file, or a service that logs JSON."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    message = next((entry[name] for name in _JSON_FIELDS if name in entry), None)
    if isinstance(message, list):
        message = bytes(one for one in message if isinstance(one, int) and 0 <= one < 256).decode(
            errors="replace"
        )
    if not isinstance(message, str):
        return None
    trace = entry.get("exc_info") or entry.get("stack_trace") or entry.get("exception")
    said = f"{message}\n{trace}" if isinstance(trace, str) else message
    ident = str(entry.get("SYSLOG_IDENTIFIER") or entry.get("_COMM") or "")
    source = str(entry.get("_PID") or "")
    found = [stripped(one, source) for one in re.split(r"[\r\n]+", said) if one]
    systemd, kernel = (
        source == "1" or ident == "systemd",
        ident == "kernel" or entry.get("_TRANSPORT") == "kernel",
    )
    return [
        line._replace(of_systemd=line.of_systemd or systemd, of_kernel=line.of_kernel or kernel)
        for line in found
    ]
