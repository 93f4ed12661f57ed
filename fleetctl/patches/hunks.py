"""Unified diffs on bytes, exactly: no fuzz, no offset, and line ends are part of the lines.

Text is decoded as Latin-1, which maps each byte to one character and back, and lines end at ``\\n`` alone; so
CRLF, form feeds, and bytes that are no UTF-8 pass through unchanged.
"""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk as Parsed
from unidiff.patch import PatchSet

CODE = "latin-1"
CONTEXT = 3
NO_NEWLINE = "\\ No newline at end of file\n"


class DiffError(ValueError):
    """A diff that is none, or that does not fit the content."""


@dataclass(frozen=True)
class Hunk:
    """``before`` lines at index ``start`` become ``after``; ``after_start`` is where those then are."""

    start: int
    before: tuple[str, ...]
    after_start: int
    after: tuple[str, ...]


def sha256(content: bytes) -> str:
    """The digest that manifests use: 64 hex digits."""
    return hashlib.sha256(content).hexdigest()


def is_binary(content: bytes) -> bool:
    """Whether a diff of it would help nobody: it holds a zero byte."""
    return b"\0" in content


def parse(diff: bytes) -> tuple[Hunk, ...]:
    """The hunks of a diff of one file; :class:`DiffError` for anything else."""
    try:
        files = PatchSet(_lines(diff))
    except UnidiffParseError as error:
        raise DiffError(f"not a unified diff: {str(error).strip()}") from None
    if len(files) != 1 or not files[0]:
        changed = sum(1 for file in files if file)
        raise DiffError(f"a diff of {changed} files; it must be of one")
    return tuple(_hunk(hunk) for hunk in files[0])


def apply(content: bytes, hunks: tuple[Hunk, ...]) -> bytes:
    """``content`` with the hunks applied; :class:`DiffError` where a line is not what a hunk says."""
    lines, result, at = _lines(content), list[str](), 0
    for number, hunk in enumerate(hunks, 1):
        end = hunk.start + len(hunk.before)
        if hunk.start < at or tuple(lines[hunk.start : end]) != hunk.before:
            raise DiffError(f"hunk {number} does not fit at line {hunk.start + 1}")
        result += [*lines[at : hunk.start], *hunk.after]
        at = end
    result += lines[at:]
    if not all(line.endswith("\n") for line in result[:-1]):
        raise DiffError("a line without its newline would stand before others")
    return "".join(result).encode(CODE)


def reverse(content: bytes, hunks: tuple[Hunk, ...]) -> bytes:
    """What ``content`` was before the hunks were applied; :class:`DiffError` where they were not."""
    return apply(
        content, tuple(Hunk(hunk.after_start, hunk.after, hunk.start, hunk.before) for hunk in hunks)
    )


def make(before: bytes, after: bytes, path: str) -> bytes:
    """The unified diff that turns ``before`` into ``after``; empty where they are equal.

    Not by ``difflib.unified_diff``: it takes lines that are frequent in a long file for junk, and a file of
    such lines for changed all over.
    """
    old, new = _lines(before), _lines(after)
    name = path.encode().decode(CODE)
    said = [f"--- a/{name}\n", f"+++ b/{name}\n"]
    groups = list(difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT))
    for group in groups:
        spans = _span(group[0][1], group[-1][2]), _span(group[0][3], group[-1][4])
        said.append(f"@@ -{spans[0]} +{spans[1]} @@\n")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                said += [f" {line}" for line in old[i1:i2]]
            else:
                said += [f"-{line}" for line in old[i1:i2]] + [f"+{line}" for line in new[j1:j2]]
    text = "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in said)
    return text.encode(CODE) if groups else b""


def _span(start: int, end: int) -> str:
    """Lines as a hunk's head has them: the first from 1, or the one before where there are none."""
    return f"{start + 1},{end - start}" if end > start else f"{start},0"


def _lines(content: bytes) -> list[str]:
    *ended, last = content.decode(CODE).split("\n")
    return [f"{line}\n" for line in ended] + ([last] if last else [])


def _hunk(hunk: Parsed) -> Hunk:
    before, after = list[str](), list[str]()
    for index, line in enumerate(hunk):
        ends = index + 1 < len(hunk) and hunk[index + 1].line_type == "\\"
        value = line.value[:-1] if ends else line.value
        if line.line_type in (" ", "-"):
            before.append(value)
        if line.line_type in (" ", "+"):
            after.append(value)
    return Hunk(
        hunk.source_start - (1 if before else 0),
        tuple(before),
        hunk.target_start - (1 if after else 0),
        tuple(after),
    )
