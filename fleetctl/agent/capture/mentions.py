"""Find the files that name a path: as a whole path, not as the beginning of another one."""

from __future__ import annotations

import os
import re
import urllib.parse
from typing import Iterable, List, Pattern

FIRST, CHUNK = 1 << 16, 1 << 22
LEAD, BEHIND = 8, 2
BEFORE = rb"(?:(?<![\w.~+\x80-\xff-])|(?<=-[LIRB])|(?<=\\n))"
AFTER = rb"(?![\w+@~\x80-\xff-]|\.\w)"


class Paths:
    """Some absolute paths, looked for in bytes, also as they stand in a file URL."""

    def __init__(self, paths: Iterable[str]) -> None:
        spellings = {spelling for path in paths for spelling in (path, urllib.parse.quote(path))}
        self._needles = sorted((os.fsencode(one) for one in spellings), key=len, reverse=True)
        joined = b"|".join(re.escape(needle) for needle in self._needles)
        self.pattern: Pattern[bytes] = re.compile(BEFORE + b"(?:" + joined + b")" + AFTER)
        self._overlap = max(map(len, self._needles), default=0) + LEAD + BEHIND

    def named_in(self, content: bytes) -> bool:
        """Whether one of the paths stands in ``content``."""
        if not any(needle in content for needle in self._needles):
            return False
        return self.pattern.search(content) is not None

    def named_by(self, file: str) -> bool:
        """Whether one of the paths stands in the file; read in pieces of a few MB."""
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            held, wanted = os.read(handle, FIRST), FIRST
            ended = len(held) < wanted
            while not self._settled(held, ended):
                if ended:
                    return False
                more, wanted = os.read(handle, CHUNK), CHUNK
                ended = len(more) < wanted
                held = held[-self._overlap :] + more
            return True
        finally:
            os.close(handle)

    def _settled(self, held: bytes, ended: bool) -> bool:
        """Whether a path is found; one at the very end of a piece may go on in the next, which sees it again."""
        if not any(needle in held for needle in self._needles):
            return False
        ends = [match.end() for match in self.pattern.finditer(held)]
        return any(ended or end + BEHIND <= len(held) for end in ends)

    def replaced(self, content: bytes, new: str) -> bytes:
        """``content`` with ``new`` in the place of each path; quoted where the old one was."""
        plain, quoted = os.fsencode(new), urllib.parse.quote(new).encode()

        def spell(match: "re.Match[bytes]") -> bytes:
            return quoted if b"%" in match.group() else plain

        return self.pattern.sub(spell, content)

    def search(self, root: str, files: Iterable[str]) -> List[str]:
        """Those of ``files`` (relative to ``root``) that name one of the paths."""
        return [path for path in files if self.named_by(f"{root}/{path}")]
