"""OpenSSH's ``known_hosts`` files with file and line, so that a refused key can name what it differs from."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class KnownKey:
    """One line's key for a host; ``revoked`` where the line says that it must not be trusted."""

    file: Path
    line: int
    kind: str
    blob: bytes
    revoked: bool

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"


def fingerprint(blob: bytes) -> str:
    """A key's fingerprint as OpenSSH prints it: ``SHA256:…``."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def known_keys(files: Iterable[Path], name: str) -> list[KnownKey]:
    """All keys that the files hold for a host's name (``host`` or ``[host]:port``); missing files hold none.

    Lines of certificate authorities are left out: Paramiko knows no host certificates.
    """
    return [key for file in files for key in _read(file, name.lower())]


def _read(file: Path, name: str) -> Iterator[KnownKey]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return
    for number, line in enumerate(lines, 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or line.startswith("#") or marker not in ("", "@revoked"):
            continue
        if not _matches(fields[0], name):
            continue
        try:
            blob = base64.b64decode(fields[2], validate=True)
        except binascii.Error:
            continue
        yield KnownKey(file, number, fields[1], blob, marker == "@revoked")


def _matches(patterns: str, name: str) -> bool:
    """OpenSSH's match: hashed names, ``*`` and ``?``, and ``!`` that rules a line out."""
    found = False
    for pattern in patterns.split(","):
        if pattern.startswith("|1|"):
            found |= _matches_hash(pattern, name)
        elif pattern.startswith("!"):
            if _matches_glob(pattern[1:], name):
                return False
        else:
            found |= _matches_glob(pattern, name)
    return found


def _matches_glob(pattern: str, name: str) -> bool:
    literal = pattern.lower().replace("[", "[[]")
    return fnmatchcase(name, literal)


def _matches_hash(pattern: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in pattern[3:].split("|"))
    except ValueError:
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)
