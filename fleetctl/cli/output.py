"""How commands print: results on stdout, progress and errors on stderr, JSON where asked.

Rich is used on terminals only (it honours NO_COLOR); what is piped is plain lines that nothing wraps.
"""

from __future__ import annotations

import errno
import json as jsonlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from fleetctl.errors import FleetError

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_GAP = "  "
LAST_COLUMN = 24
Part = tuple[str, str]
"""A text with its style in Rich's words; "" for none."""


class Output:
    """One command's output; ``json`` is its ``--json``. Events may come from any thread."""

    def __init__(self, json: bool = False) -> None:
        self.json = json
        self._lock = threading.Lock()

    @cached_property
    def progress(self) -> Console:
        """Rich's console on stderr, for what is said while a command works."""
        return _console(stderr=True)

    @property
    def is_live(self) -> bool:
        """Whether progress goes to a terminal; where it does not, Rich is not even imported."""
        return sys.stderr.isatty() and self.progress.is_terminal

    def note(self, text: str) -> None:
        """A line of progress."""
        if sys.stderr.isatty():
            self.progress.print(clean(text), markup=False, highlight=False)
            return
        with self._lock:
            print(clean(text) + "\n", end="", flush=True, file=_Steady(sys.stderr))

    def line(self, text: str = "") -> None:
        """A line of the result."""
        self._write(clean(text))

    def styled(self, parts: Sequence[Part], indent: int = 0) -> None:
        """A line of the result, coloured and wrapped behind its indent on a terminal, plain where piped."""
        cleaned = [(clean(text), style) for text, style in parts if text]
        if not sys.stdout.isatty():
            self._write(" " * indent + "".join(text for text, _ in cleaned))
            return
        from rich.padding import Padding
        from rich.text import Text

        _console().print(Padding(Text.assemble(*cleaned), (0, 0, 0, indent)))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Rows under their headings: a Rich table on a terminal, aligned columns where piped.

        On a terminal too narrow for all but the last column each row is a block, with a line for each of its cells.
        """
        cells = [[clean(cell) for cell in row] for row in rows]
        if not sys.stdout.isatty():
            for text in _aligned([column.upper() for column in columns], cells):
                self._write(text)
            return
        from rich.table import Table
        from rich.text import Text

        console = _console()
        fits = _width([columns, *cells]) <= console.width
        table = Table(box=None, show_header=fits, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        if fits:
            for column in columns:
                table.add_column(column, overflow="fold")
            for row in cells:
                table.add_row(*(Text(cell) for cell in row))
        else:
            table.add_column(style="bold", no_wrap=True)
            table.add_column(overflow="fold")
            for number, row in enumerate(cells):
                if number:
                    table.add_row()
                for column, cell in zip(columns, row, strict=True):
                    table.add_row(column, Text(cell))
        console.print(table)

    def document(self, data: Any) -> None:
        """The result as one JSON document."""
        self._write(jsonlib.dumps(data, indent=2, ensure_ascii=False))

    def event(self, event: dict[str, Any]) -> None:
        """One JSON object on a line of its own, seen at once by who reads the pipe."""
        self._write(jsonlib.dumps(event, ensure_ascii=False))

    def raw(self, text: str) -> None:
        """The result as it is, for another program: nothing is taken out of it or put behind it."""
        self._write(text, end="")

    def print_error(self, error: FleetError) -> None:
        """What went wrong, where, what was seen, and the way on; with ``--json`` one object on stdout."""
        if self.json:
            self.event({"error": error.to_dict()})
            return
        self._say("error: ", error.what, "bold red")
        if error.where:
            self._say("  at ", error.where, "dim")
        for seen in error.evidence:
            for line in seen.splitlines():
                self._say("  | ", line, "dim")
        if error.fix:
            self._say("fix: ", error.fix, "bold green")

    def _say(self, lead: str, text: str, style: str) -> None:
        from rich.text import Text

        self.progress.print(Text.assemble((lead, style), clean(text)), soft_wrap=True)

    def _write(self, text: str, end: str = "\n") -> None:
        with self._lock:
            print(text, end=end, flush=True, file=_Steady(sys.stdout))


class _Steady:
    """A stream whose reader may leave (``| head``) or whose disk may fill: the work goes on.

    What a full disk loses is said once on stderr. What the stream's encoding lacks is written as an escape.
    """

    has_lost = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        encoding = self.encoding or "utf-8"
        self._safely(lambda: self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding)))
        return len(text)

    def flush(self) -> None:
        self._safely(self._stream.flush)

    def _safely(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if error.errno != errno.EPIPE and self._stream is not sys.stderr:
                _Steady.has_lost = True
                print(f"error: the output is lost: {error.strerror}", file=sys.stderr)


def is_lost() -> bool:
    """Whether some of the results went to nobody; a reader that left wanted none of them."""
    return _Steady.has_lost


def lose(error: FleetError) -> None:
    """Say on stderr what of the results was not kept; a command that ends well else then has exit 1."""
    _Steady.has_lost = True
    Output().print_error(error)


def clean(text: str) -> str:
    """``text`` without what could drive a terminal: escape sequences and control characters."""
    return _CONTROL.sub("", text)


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    stream = _Steady(sys.stderr if stderr else sys.stdout)
    on_terminal = None if stream.isatty() else False
    return Console(
        file=cast("IO[str]", stream),
        highlight=False,
        force_terminal=on_terminal,
        soft_wrap=on_terminal is False,
    )


def _width(rows: Sequence[Sequence[str]]) -> int:
    """The least width of a table that breaks no cell but those of its last column, which may have lines."""
    from rich.cells import cell_len

    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return sum(widths[:-1]) + min(widths[-1], LAST_COLUMN) + len(_GAP) * (len(widths) - 1)


def _aligned(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in [heading, *rows]) for column in range(len(heading))]
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [heading, *rows]
    ]
