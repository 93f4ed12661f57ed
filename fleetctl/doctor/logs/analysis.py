"""One log read once: starts, causes, exceptions; most lines are only compared with lines seen before."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from fleetctl.agent.rollout.signatures import EXCEPTION, Signatures
from fleetctl.doctor.logs.lines import Line, parts
from fleetctl.doctor.logs.starts import Said, Start, keep, mark
from fleetctl.doctor.logs.traceback import CAUSED, DURING, Assembler, Raised, inner
from fleetctl.doctor.signatures import ROWS, SIGNATURES, by_id
from fleetctl.doctor.signatures.words import words

DIGITS = b"0123456789"
SMALL = b"abcdefghijklmnopqrstuvwxyz "
INDENT = b"    "
THROWN = re.compile(r"\s*what\(\):\s+(.*)")
NO_CODE = (b"|", b"+", b"M")
MESSAGE = re.compile(rb'"MESSAGE" ?: ?(?:"((?:[^"\\]|\\.)*)|\[)')
SYSTEMD = b'"systemd"'
MOST_SHAPES = 60_000
MOST_SOURCES = 200
MOST_ASKED = 5000
TAIL = 40
MANY = 20_000
LONGEST_OPEN = 4000
MOST_CODE = 300
# A line that says an error by its form; asked for where nothing else says why.
ERROR = re.compile(
    r"(?:\[?(?:ERROR|FATAL|CRITICAL|[Ff]atal|[Ee]rror)\]?\b ?[:\]]|\S+: (?:fatal )?[Ee]rror: |panic: |FATAL "
    r"|terminate called"
    r"|(?:ERROR|\[E\] .*|[Ff]ailed|[Cc]annot|[Uu]nable to|[Cc]ould not|[Cc]an't) )|.*(?:level=(?:error|fatal)"
    r"|Error response from daemon|\berr(?:or)?=)"
)
_MARKS = ("server_args=", "vLLM API server", "Initializing a V", "systemd", "fired up", "startup complete")
_OTHERS = ('File "', "OutOfResources", "Interrupt", "what():", "Signal", "exitcode")
# What only announces: its own cause follows it. The other consequences come after their cause.
ANNOUNCE = (
    "svc-scheduler-exception",
    "abi-kernel-library",
    "arch-cuda-graph",
    "arch-triton-ptx",
    "cfg-validation",
)
# One that may be: asked for where no other line says why.
MAYBE = re.compile(
    r".*\b(?:ERROR|FATAL|[Ee]rror\b(?!s)|[Ff]ailed|[Ff]ailure|[Cc]annot|[Uu]nable to|not found|not supported"
    r"|[Ii]nvalid|[Nn]o such)\b"
)
# What wraps another exception, whose type and words follow its own.
WRAPS = ("svc-build-failed", "svc-import-failed")
_REPORTED = [row for row in ROWS if row["verdict"] != "last"]
_TABLE = [one if one["verdict"] != "warning" else {**one, "verdict": "fatal"} for one in _REPORTED]


class Analysis:
    """Takes a log's blocks of whole lines; afterwards ``starts`` holds what each start said."""

    def __init__(self) -> None:
        self.number = 0
        self.starts = [Start(1)]
        self.tail: deque[str] = deque(maxlen=TAIL)
        self._known = Signatures(_TABLE, thorough=True)
        extra = (*_MARKS, *_OTHERS, *_words_of_warnings())
        self._fragments = _rare(_bytes((*self._known.fragments, *extra)))
        self._certain = _rare(_bytes((*Signatures(_TABLE).fragments, *extra)))
        self._dull: set[bytes] = set()
        self._asked: dict[str, dict[str, Any] | None] = {}
        self._plain = Assembler()
        self._traces: dict[str, Assembler] = {"": self._plain}
        self._open = self._opened = 0
        self._last_block = self._code = b""

    @property
    def last(self) -> Start:
        """The start going on."""
        return self.starts[-1]

    def feed(self, block: bytes) -> None:
        """One block of whole lines."""
        self._last_block = block
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        shapes = self._shapes(block, len(lines))
        if self._open and self.number - self._opened > LONGEST_OPEN:
            self._forget()
        if len(self._dull) > MOST_SHAPES:
            self._dull.clear()
        fresh = set(shapes).difference(self._dull)
        together = b"\n".join(fresh)
        # Where line after line was never seen before, only what is certain or looks suspicious is looked for.
        is_repeating = self.number < MANY or len(together) * 4 < len(block)
        fragments = self._fragments if is_repeating else self._certain
        there = set(together.translate(None, SMALL))
        possible = [one for one, rare in fragments if rare <= there and one in together]
        if not self._open and not possible:
            self._dull.update(fresh if is_repeating else ())
            self.number += len(lines)
            return
        for raw, shape in zip(lines, shapes, strict=True):
            self.number += 1
            if self._open:
                if raw[:4] == INDENT and raw[4:5] not in NO_CODE and self._plain.is_open:
                    self._code = raw
                    continue
            elif shape in self._dull:
                continue
            elif not any(fragment in shape for fragment in possible):
                if is_repeating:
                    self._dull.add(shape)
                continue
            for line in parts(raw):
                self._line(line)
                if line.is_note and self._known.harmless(line.text):
                    self._dull.add(shape)

    def _shapes(self, block: bytes, count: int) -> list[bytes]:
        """The lines without their digits; of a journal's JSON entries the message alone."""
        shapes = block.translate(None, DIGITS).split(b"\n")[:count]
        return [self._message(shape) for shape in shapes] if block[:1] == b"{" else shapes

    def _message(self, shape: bytes) -> bytes:
        entry = MESSAGE.search(shape)
        if entry is None or SYSTEMD in shape:
            return shape
        return shape + self._fragments[0][0] if entry[1] is None else entry[1]

    def end(self) -> None:
        """No more blocks: what was said last."""
        lines = self._last_block[-(1 << 14) :].split(b"\n")
        said = (line.text.strip() for raw in lines for line in parts(raw))
        self.tail.extend(text for text in said if text and not text.startswith("("))

    def _line(self, line: Line) -> None:
        text = line.text
        if any(word in text for word in _MARKS) or line.of_systemd:
            self._marked(line)
        trace = self._trace(line.source)
        was_open = trace.is_open
        if self._code:
            if 'File "' not in text:
                self._plain.see(self._code[:MOST_CODE].decode(errors="replace"))
            self._code = b""
        is_code = trace.is_code(text)
        raised = trace.add(text, self.number)
        if trace.is_open != was_open:
            self._open += trace.is_open - was_open
            self._opened = self.number
        if is_code or CAUSED in text or DURING in text:
            return
        signature = self._match(text)
        if signature and line.is_note and signature["verdict"] == "likely":
            if not line.is_info and not signature.get("consequence"):
                keep(self.last.hints, Said(self.number, text, signature=dict(signature)))
            signature = None
        if signature:
            self._signed(signature, text, raised)
        elif raised is not None:
            self._raised(raised)
        elif thrown := THROWN.match(text):
            self._raised(Raised("terminate", thrown[1], self.number, f"C++ exception: {thrown[1]}"))
        elif not was_open and EXCEPTION.match(text) and not self._known.harmless(text):
            self._raised(self._told(text))
        elif not was_open and not line.is_note and not self._known.harmless(text):
            self._worded(text)

    def _worded(self, text: str) -> None:
        """A line that says an error by its words."""
        into = self.last.errors if ERROR.match(text) else self.last.doubts if MAYBE.match(text) else None
        if into is not None and " NCCL INFO " not in text:
            keep(
                into, Said(self.number, text, raised=Raised("", text.strip(), self.number, text=text.strip()))
            )

    def _match(self, text: str) -> dict[str, Any] | None:
        """Which signature knows the text; texts that were asked for lately are not asked again."""
        if text not in self._asked:
            if len(self._asked) > MOST_ASKED:
                self._asked.clear()
            self._asked[text] = self._known.match(text)
        return self._asked[text]

    def _trace(self, source: str) -> Assembler:
        if source not in self._traces:
            if len(self._traces) >= MOST_SOURCES:
                self._forget()
            self._traces[source] = Assembler()
        return self._traces[source]

    def _forget(self) -> None:
        """Tracebacks that never end are given up."""
        self._plain = Assembler()
        self._traces = {"": self._plain}
        self._open = 0

    def _marked(self, line: Line) -> None:
        begun = mark(line.text, line.of_systemd)
        if begun:
            if self.last.has_said or "engine" in self.last.marks:
                self.starts.append(Start(self.number))
                self._fold()
            self.last.marks.add(begun)
            self.last.is_sglang = self.last.is_sglang or "ServerArgs(" in line.text
        self.last.saw_ready(line.text, self.number)

    def _fold(self) -> None:
        """Of very many starts the first and the last ones are enough."""
        if len(self.starts) > 2000:
            del self.starts[1000]

    def _signed(self, signature: dict[str, Any], text: str, raised: Raised | None) -> None:
        one = Said(self.number, text, signature=dict(signature))
        id = str(signature["id"])
        if by_id[id].verdict == "warning":
            self.last.counts.setdefault(id, []).append(one)
        elif not signature.get("consequence"):
            keep(self.last.causes, one)
        else:
            keep(self.last.announcements if id in ANNOUNCE else self.last.ends, one)
            if raised is None and EXCEPTION.match(text):
                raised = self._told(text)
            if raised is not None and id in WRAPS:
                self._raised(inner(raised))

    def _told(self, text: str) -> Raised:
        """An exception of which only the line that says it is there."""
        name, _, message = text.partition(":")
        return Raised(name.rsplit(" ", 1)[-1], message.strip(), self.number, text=text.strip())

    def _raised(self, raised: Raised) -> None:
        first = raised.first
        if first is not raised and any(one.raised is first for one in self.last.exceptions):
            return
        keep(self.last.exceptions, Said(raised.number, raised.text, raised=raised))


def _rare(fragments: Iterable[bytes]) -> tuple[tuple[bytes, frozenset[int]], ...]:
    """Each fragment with its characters but small letters: a block that lacks one of them is not searched for it."""
    return tuple((one, frozenset(one.translate(None, SMALL))) for one in fragments)


def _bytes(texts: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(text.encode() for text in texts))


def _words_of_warnings() -> Iterable[str]:
    return (word for one in SIGNATURES if one.verdict == "warning" for word in words(one.pattern))
