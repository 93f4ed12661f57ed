"""Read a distribution's RECORD: which files it installed, and what they hashed to then.

Nothing in a RECORD can make this fail: a line that cannot be read makes its state ``malformed`` and the others
count.
"""

from __future__ import annotations

import base64
import binascii
import csv
import io
import posixpath
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional

from fleetctl.agent.files import read_start
from fleetctl.agent.sha import sha256_of

LIMIT = 64 << 20
LENGTHS = {"sha256": 32, "sha384": 48, "sha512": 64}
NOT_UTF8 = re.compile("[\udc80-\udcff]")
UNUSUAL = re.compile(r"//|(?:^|/)\.\.?(?:/|$)|/$")
INSTALLERS_OWN = (
    "RECORD",
    "RECORD.jws",
    "RECORD.p7s",
    "INSTALLER",
    "REQUESTED",
    "direct_url.json",
    "uv_cache.json",
    "uv_build.json",
)


class Entry(NamedTuple):
    """One line: ``path`` as written, ``algorithm`` and ``digest`` in hex ("" where it has none), ``size`` or -1."""

    path: str
    algorithm: str
    digest: str
    size: int

    @property
    def is_bytecode(self) -> bool:
        """Byte code is written by whoever compiles, so it is no part of what was installed."""
        return self.path.endswith(".pyc")


class Record(NamedTuple):
    """``state`` is ``ok``, ``missing``, ``unreadable`` or ``malformed`` (``why`` names the first line that is)."""

    state: str
    why: str
    entries: List[Entry]


def read_record(path: Path) -> Record:
    """The RECORD at ``path``."""
    try:
        data = read_start(str(path), LIMIT + 1)
    except FileNotFoundError:
        return Record("missing", "there is no RECORD", [])
    except OSError as error:
        state = "unreadable" if isinstance(error, PermissionError) else "missing"
        return Record(state, f"RECORD cannot be read: {error.strerror}", [])
    return parse_record(data)


def parse_record(data: bytes) -> Record:
    """The entries of a RECORD's bytes, each path once: its last line counts."""
    if len(data) > LIMIT:
        return Record("malformed", f"more than {LIMIT >> 20} MB", [])
    if not data.strip():
        return Record("malformed", "empty", [])
    found: Dict[str, Entry] = {}
    why = ""
    for number, row in _rows(data.decode("utf-8", "surrogateescape")):
        try:
            entry = _entry(row)
        except ValueError as error:
            why = why or f"line {number}: {error}"
            continue
        found[entry.path] = entry
    return Record("malformed" if why else "ok", why, list(found.values()))


def record_sha256(record: Record, info: str) -> str:
    """The sha256 that names a distribution's content wherever it is installed, by whom and under which path.

    Of the sorted lines ``path,hash``. Left out are byte code and what the installer writes into the ``info``
    folder (``x-1.0.dist-info``); of scripts outside site-packages only the path counts, since their first line
    names the environment.
    """
    own = {f"{info}/{name}" for name in INSTALLERS_OWN}
    lines = []
    for entry in record.entries:
        path = normal(entry.path)
        if entry.is_bytecode or path in own:
            continue
        hashed = f"{entry.algorithm}={entry.digest}" if entry.digest and not leaves(path) else ""
        lines.append(f"{path},{hashed}\n")
    text = "".join(sorted(lines))
    return sha256_of(text)


def normal(path: str) -> str:
    """The path without ``.``, ``..`` and doubled slashes; nearly all have none."""
    return posixpath.normpath(path) if UNUSUAL.search(path) else path


def leaves(path: str) -> bool:
    """Whether a path of a RECORD lies outside site-packages."""
    return path.startswith(("/", "../"))


def _rows(text: str) -> Iterator["tuple[int, List[str]]"]:
    """Each line's number and fields; a line that csv refuses has none."""
    reader = csv.reader(io.StringIO(text.replace("\0", "\ufffd"), newline=""))
    while True:
        try:
            row: Optional[List[str]] = next(reader, None)
        except csv.Error:
            row = [""]
        if row is None:
            return
        if row:
            yield reader.line_num, row


def _entry(row: List[str]) -> Entry:
    if len(row) != 3:
        raise ValueError(f"{len(row)} fields where 3 are meant to be")
    path, hashed, size = row
    if not path or "\ufffd" in path:
        raise ValueError("no path that a file can have")
    if not path.isascii() and NOT_UTF8.search(path):
        raise ValueError("a path that is not UTF-8")
    if path.endswith(".pyc"):
        return Entry(path, "", "", -1)
    if size and not (size.isascii() and size.isdigit() and len(size) < 20):
        raise ValueError("a size that is no number")
    algorithm, digest = _digest(hashed)
    return Entry(path, algorithm, digest, int(size) if size else -1)


def _digest(hashed: str) -> "tuple[str, str]":
    if not hashed:
        return "", ""
    algorithm, _, text = hashed.partition("=")
    if algorithm not in LENGTHS:
        raise ValueError(f"a hash that is none of {', '.join(LENGTHS)}")
    text = text.rstrip("=")
    try:
        raw = base64.b64decode((text + "=" * (-len(text) % 4)).encode("ascii"), b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("a hash that is not base64") from None
    if len(raw) != LENGTHS[algorithm]:
        raise ValueError(f"a hash that is not a {algorithm}")
    return algorithm, raw.hex()
