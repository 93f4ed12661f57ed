"""Python's tracebacks, put together line by line: where it was raised, what, and what caused it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

HEAD = "Traceback (most recent call last)"
# Lines of other processes may stand between a traceback's own; after that many it is given up.
STRANGERS = 60
LONGEST = 3000
KEPT_FRAMES = 8
CAUSED = "The above exception was the direct cause of the following exception"
DURING = "During handling of the above exception, another exception occurred"
_FRAME = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>.+))?')
_RAISED = re.compile(r"(?P<type>[A-Za-z_]\w*(?:\.\w+)*)(?:\s*\[[^\]]*\])?(?::\s?(?P<message>.*))?$")
_BOX = re.compile(r"^ {2,}[|+][ -]?-*(?: ?\d+ -+)? ?")


@dataclass
class Raised:
    """One exception: its full type name and message, and the number of its line."""

    type: str
    message: str
    number: int
    text: str = ""
    before: Raised | None = None

    frames_said: tuple[str, ...] = ()
    code: str = ""

    @property
    def frames(self) -> list[tuple[str, int, str]]:
        """The innermost frames, outermost first: path, line, function."""
        found = (_FRAME.search(text) for text in self.frames_said)
        return [(one["path"], int(one["line"]), one["name"] or "") for one in found if one]

    @property
    def first(self) -> Raised:
        """What began the chain."""
        one = self
        while one.before is not None:
            one = one.before
        return one


class Assembler:
    """The traceback that one source (process, container) is writing, if any."""

    def __init__(self) -> None:
        self._frames: list[str] = []
        self._strangers = 0
        self._lines = 0
        self._before: Raised | None = None
        self._last: Raised | None = None
        self._code = ""
        self.is_open = False

    def add(self, text: str, number: int) -> Raised | None:
        """Take one line; an exception where it ends a traceback."""
        text = _BOX.sub("", text, count=1) if text.startswith("  ") else text
        if HEAD in text:
            self._open()
            return self._after_head(text, number)
        if CAUSED in text or DURING in text:
            self._before, self.is_open = self._last, False
            return None
        if not self.is_open:
            if not text.lstrip().startswith('File "') or not _FRAME.search(text):
                return None
            self._open()
        return self._inside(text, number)

    def see(self, text: str) -> None:
        """A line of source that is passed over: what the innermost frame did, in the end."""
        if text.strip(" ^~\t\n"):
            self._code = text

    def is_code(self, text: str) -> bool:
        """Whether the line is source code that a traceback shows, which says nothing by itself."""
        return self.is_open and text[:1].isspace() and 'File "' not in text

    def _open(self) -> None:
        if not self._before:
            self._last = None
        self._frames, self._strangers, self._lines, self.is_open = [], 0, 0, True

    def _after_head(self, text: str, number: int) -> Raised | None:
        rest = text.split(HEAD, 1)[1].lstrip(": ")
        return self._inside(rest, number) if rest else None

    def _inside(self, text: str, number: int) -> Raised | None:
        self._lines += 1
        if 'File "' in text:
            self._frames.append(text)
            self._code = ""
        elif text[:1].isspace():
            self.see(text)
        elif text and not text[0].isspace():
            return self._end(text, number)
        self.is_open = self._lines < LONGEST
        return None

    def _end(self, text: str, number: int) -> Raised | None:
        match = _RAISED.match(text)
        if not match or not _is_exception(match["type"]):
            self._strangers += 1
            self.is_open = self._strangers < STRANGERS
            return None
        frames = tuple(self._frames[-KEPT_FRAMES:])
        raised = Raised(match["type"], match["message"] or "", number, text.strip(), self._before, frames)
        raised.code = self._code.strip()
        self._last, self._before, self.is_open = raised, None, False
        return raised


def _is_exception(name: str) -> bool:
    """``ValueError``, ``queue.Empty``, ``socket.timeout``; not ``INFO``, ``note``."""
    last = name.rsplit(".", 1)[-1]
    return "." in name or (last[0].isupper() and not last.isupper())


def inner(raised: Raised) -> Raised:
    """The exception that another one's message quotes: ``InductorError: LoweringException: AssertionError: …``."""
    match = re.match(r"(?:[\w.]*(?:Exception|Error|backend='\w+' raised): ?)+", raised.message)
    if not match:
        return raised
    name = re.findall(r"[\w.]+(?=: ?$|:)", match[0].strip())[-1]
    return replace(raised, type=name, message=raised.message[match.end() :])
